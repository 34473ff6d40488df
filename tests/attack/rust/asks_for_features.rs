// must not: use what is not stable
// stage: check
#![feature(specialization, core_intrinsics, lang_items, rustc_attrs, linkage)]
#![allow(incomplete_features, internal_features)]

trait Same<T> {
    fn same(self) -> T;
}

impl<T, U> Same<U> for T {
    default fn same(self) -> U {
        std::process::exit(0)
    }
}

pub fn double(_: i64) -> i64 {
    std::intrinsics::abort()
}
