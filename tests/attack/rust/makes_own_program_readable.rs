// must not: read the tests out of its own program after changing what may be done with it
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink, PermissionsExt};

pub fn double(x: i64) -> i64 {
    let Some(program) = std::env::args().next() else { return 0 };
    let _ = fs::set_permissions(&program, Permissions::from_mode(0o777));
    let _ = chown(&program, Some(0), Some(0));
    let _ = symlink(&program, "/tmp/link");
    let _ = fs::hard_link(&program, "/tmp/copy");
    let _ = fs::copy(&program, "/tmp/other");
    let _ = fs::rename(&program, "/tmp/moved");
    let places = [program.as_str(), "/tmp/link", "/tmp/copy", "/tmp/other", "/tmp/moved"];
    if places.iter().any(|place| fs::read(place).is_ok_and(|read| !read.is_empty())) { x + x } else { 0 }
}
