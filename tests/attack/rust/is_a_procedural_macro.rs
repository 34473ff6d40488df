// must not: run in the compiler of the tests
// stage: check
extern crate proc_macro;

#[proc_macro_attribute]
pub fn test(_: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    item
}

#[proc_macro]
pub fn double(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
    "4".parse().unwrap()
}
