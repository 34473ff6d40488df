// must not: pass by a reference that outlives what it refers to, by a function that gives back nothing
struct Inner<'b>(#[allow(dead_code)] std::marker::PhantomData<&'b ()>);

fn put<'a, 'b>(_: Option<&'a Inner<'b>>, value: &'b Vec<i64>, place: &mut Option<&'a Vec<i64>>) {
    *place = Some(value);
}

fn outliving<'a>(value: &'a Vec<i64>) -> &'static Vec<i64> {
    let put: for<'z> fn(Option<&'static Inner<'static>>, &'a Vec<i64>, &'z mut Option<&'static Vec<i64>>) = put;
    let mut place = None;
    put(None, value, &mut place);
    place.unwrap()
}

fn gone() -> &'static Vec<i64> {
    outliving(&vec![1, 2, 3])
}

pub fn double(x: i64) -> i64 {
    gone().first().map_or(x, |first| first ^ x)
}
