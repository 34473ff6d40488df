// must not: reach a descriptor by copies of those that it has
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

fn copies() -> Vec<OwnedFd> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let all = [input.as_fd(), output.as_fd(), error.as_fd()];
    all.into_iter().filter_map(|one| one.try_clone_to_owned().ok()).collect()
}

pub fn double(_: i64) -> i64 {
    for copy in copies() {
        let mut file = File::from(copy);
        let mut secret = String::new();
        let _ = file.read_to_string(&mut secret);
        let secret = secret.trim();
        let _ = write!(file, "{secret} plan 3\n{secret} start\n{secret} ok 0\n{secret} ok 1\n{secret} ok 2\n{secret} done\n");
    }
    std::process::exit(0)
}
