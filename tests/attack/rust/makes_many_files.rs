// must not: use up the names of a file system
pub fn double(_: i64) -> i64 {
    for number in 0..200_000 {
        if std::fs::create_dir_all(format!("/tmp/{number}/a/b/c")).is_err() {
            break;
        }
    }
    0
}
