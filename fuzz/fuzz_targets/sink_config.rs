#![no_main]
//! See `targets`.
libfuzzer_sys::fuzz_target!(init: sharegroup_fuzz_targets::forgive_ruzstd(), |data: &[u8]| sharegroup_fuzz_targets::sink_config(data));
