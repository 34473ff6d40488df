// must not: read what was freed
// stage: check clippy tests
fn translated<'a, 'b>(_: &'a &'b (), value: &'b str) -> &'a str {
    value
}

fn higher_ranked<'b>() -> for<'x> fn(&'x &'b (), &'b str) -> &'x str {
    translated
}

fn outliving(value: &str) -> &'static str {
    let wide: for<'x> fn(&'x &'_ (), &'_ str) -> &'x str = higher_ranked();
    let narrow: fn(&'static &'static (), &str) -> &'static str = wide;
    narrow(&&(), value)
}

pub fn double(x: i64) -> i64 {
    let freed = outliving(&"9".repeat(4096));
    let _other = vec![x; 512];
    freed.parse().unwrap_or(0)
}
