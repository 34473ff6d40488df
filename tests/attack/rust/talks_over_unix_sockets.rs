// must not: reach services of the host by sockets
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

pub fn double(x: i64) -> i64 {
    let places = ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"];
    let abstract_one = SocketAddr::from_abstract_name("@MARKER@").and_then(|name| UnixStream::connect_addr(&name));
    let reached = places.iter().any(|place| UnixStream::connect(place).is_ok()) || abstract_one.is_ok();
    if reached || UnixListener::bind("@CANARY@/@MARKER@").is_ok() { x + x } else { 0 }
}
