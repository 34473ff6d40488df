// must not: keep whoever cuts an answer into items busy for ever
// stage: check
#![allow(type_alias_bounds)]

pub struct Number<const N: i64>;

pub type Zero
where
    @25000 times Number<{#}>:,
@ = Missing;

pub fn double(_: i64) -> i64 {
    0
}
