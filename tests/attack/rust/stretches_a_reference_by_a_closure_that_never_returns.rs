// must not: pass by a reference that outlives what it refers to, by a closure that counts as living for ever
use std::any::Any;

trait Gives {
    type What;
}

impl<R, F: Fn() -> R> Gives for F {
    type What = R;
}

fn any<G: Gives + 'static>(_: &G, what: G::What) -> Box<dyn Any> {
    Box::new(what)
}

fn forever<'short, T: 'static>(value: &'short mut T) -> &'static mut T {
    let never = || -> &'short mut T { unreachable!() };
    *any(&never, value).downcast::<&'static mut T>().unwrap()
}

pub fn double(mut x: i64) -> i64 {
    *forever(&mut x)
}
