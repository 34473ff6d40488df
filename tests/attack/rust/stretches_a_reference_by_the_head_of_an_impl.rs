// must not: pass by a reference that outlives what it refers to, by a bound that only the head of an impl has
trait Kind {
    type Of;
}

impl<T> Kind for T {
    type Of = ();
}

trait Longer<'long, T> {
    fn longer(self) -> &'long mut T;
}

impl<'long, 'short, T> Longer<'long, T> for (&'short mut T, <&'long &'short () as Kind>::Of) {
    fn longer(self) -> &'long mut T {
        self.0
    }
}

fn forever<T: 'static>(value: &mut T) -> &'static mut T {
    (value, ()).longer()
}

pub fn double(mut x: i64) -> i64 {
    let dangling: &'static mut i64 = forever(&mut x);
    *dangling
}
