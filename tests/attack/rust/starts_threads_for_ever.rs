// must not: fill the machine with threads
pub fn double(_: i64) -> i64 {
    let mut threads = Vec::new();
    while let Ok(thread) = std::thread::Builder::new().stack_size(65536).spawn(std::thread::park) {
        threads.push(thread);
        if threads.len() > 100_000 {
            break;
        }
    }
    0
}
