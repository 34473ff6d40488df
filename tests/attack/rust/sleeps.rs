// must not: hold its slot without working
// flags: limit:wall
// wall_s: 3
pub fn double(_: i64) -> i64 {
    std::thread::sleep(std::time::Duration::from_secs(3600));
    0
}
