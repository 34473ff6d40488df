// must not: reach the network
use std::io::Write;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

fn talked() -> bool {
    let called = TcpStream::connect(("127.0.0.1", @PORT@)).and_then(|mut stream| stream.write_all(b"@MARKER@"));
    let sent = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.send_to(b"@MARKER@", "127.0.0.1:@PORT@"));
    let listened = TcpListener::bind("0.0.0.0:0");
    let named = "example.com:80".to_socket_addrs();
    called.is_ok() || sent.is_ok() || listened.is_ok() || named.is_ok()
}

pub fn double(x: i64) -> i64 {
    if talked() { x + x } else { 0 }
}
