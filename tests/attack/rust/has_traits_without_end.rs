// must not: keep the trait solver busy for ever
// stage: check clippy tests
trait Sum {
    const N: i64;
}

impl Sum for () {
    const N: i64 = 1;
}

impl<A: Sum, B: Sum> Sum for (A, B) {
    const N: i64 = A::N + B::N;
}

type T1<T> = ((T, T), (T, T));
type T2<T> = T1<T1<T1<T>>>;
type T3<T> = T2<T2<T2<T>>>;

pub fn double(_: i64) -> i64 {
    <T3<T3<()>> as Sum>::N * 0
}
