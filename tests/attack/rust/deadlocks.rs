// must not: hold its slot in a deadlock
// flags: limit:wall
// wall_s: 3
use std::sync::Mutex;

pub fn double(_: i64) -> i64 {
    let lock = Mutex::new(0);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let _held = lock.lock();
        let keeps = sender;
        scope.spawn(|| {
            let _waits = lock.lock();
        });
        let got = receiver.recv().unwrap_or(0);
        drop(keeps);
        got
    })
}
