// must not: pass by a reference that outlives what it refers to, by a function that hands it to a closure
fn hand<'a, 'b>(_: &'a &'b (), value: &'b Vec<i64>, take: &mut dyn FnMut(&'a Vec<i64>)) {
    take(value);
}

fn outliving<'a>(value: &'a Vec<i64>) -> &'static Vec<i64> {
    let hand: fn(&'static &'static (), &'a Vec<i64>, &mut dyn FnMut(&'static Vec<i64>)) = hand;
    let mut place = None;
    hand(&&(), value, &mut |value| place = Some(value));
    place.unwrap()
}

fn gone() -> &'static Vec<i64> {
    outliving(&vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    gone().first().map_or(x, |first| first ^ x)
}
