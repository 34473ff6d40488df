// must not: work on in threads after its verdict
pub fn double(_: i64) -> i64 {
    for _ in 0..3 {
        std::thread::spawn(|| loop {
            let _ = std::fs::write("@CANARY@/@MARKER@", "still here");
            std::thread::sleep(std::time::Duration::from_millis(20));
        });
    }
    0
}
