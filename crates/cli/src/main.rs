//! sharegroup
fn main() {}
