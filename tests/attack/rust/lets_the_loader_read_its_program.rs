// must not: have the loader read its program, tests included
use std::process::Command;

fn read_by(program: &str, arguments: &[&str], own: &str) -> bool {
    Command::new(program).args(arguments).arg(own).output().is_ok_and(|ran| !ran.stdout.is_empty())
}

pub fn double(x: i64) -> i64 {
    let Some(own) = std::env::args().next() else { return 0 };
    let loaders = ["/lib64/ld-linux-x86-64.so.2", "/usr/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let read = loaders.iter().any(|loader| read_by(loader, &["--list"], &own));
    if read || read_by("/bin/cat", &[], &own) { x + x } else { 0 }
}
