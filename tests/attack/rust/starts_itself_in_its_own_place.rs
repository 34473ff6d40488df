// must not: have a second run of its program taken for the first
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub fn double(x: i64) -> i64 {
    if std::env::var_os("AGAIN").is_some() {
        return x + x;
    }
    if let (Some(own), Ok((reader, mut writer))) = (std::env::args().next(), std::io::pipe()) {
        let _ = std::io::Write::write_all(&mut writer, b"secret\n");
        drop(writer);
        let _failed = Command::new(own).env("AGAIN", "1").stdin(Stdio::from(reader)).exec();
    }
    0
}
