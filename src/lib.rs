//! sharegroup
