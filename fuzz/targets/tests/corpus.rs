//! Replays everything that fuzzing has found so far.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use sharegroup_fuzz_targets::{TARGETS, Target};

fn fuzz_folder() -> &'static Path {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR"));
    targets.parent().expect("it lies in the folder fuzz")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    entries.sort();
    entries
}

/// Says which input it was when its target panics.
struct Input<'a>(&'a str, &'a dyn std::fmt::Debug);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}: {:?}", self.0, self.1);
        }
    }
}

/// Runs a target over its files in `corpus` and `regressions`; how many there are.
fn replay(target: &Target) -> usize {
    let folders = ["corpus", "regressions"].map(|folder| fuzz_folder().join(folder));
    let files = folders.map(|folder| entries(&folder.join(target.name)));
    assert!(!files[0].is_empty(), "{} has no corpus", target.name);
    for file in files.iter().flatten() {
        let _input = Input(target.name, file);
        (target.run)(&fs::read(file).expect("a readable file"));
    }
    files.iter().map(Vec::len).sum()
}

#[test]
fn all_inputs_found_by_fuzzing_keep_the_promises() {
    sharegroup_fuzz_targets::forgive_ruzstd();
    let files: usize = TARGETS.iter().map(replay).sum();
    println!("files replayed: {files}");
}

#[test]
fn all_seeds_keep_the_promises() {
    for seed in sharegroup_fuzz_targets::seeds::seeds().expect("seeds") {
        let target = TARGETS.iter().find(|target| target.name == seed.target);
        let _input = Input(seed.target, &seed.input);
        (target.expect("a target").run)(&seed.input);
    }
}

#[test]
fn every_folder_and_program_has_its_target() {
    let is_target = |name: &str| TARGETS.iter().any(|target| target.name == name);
    for folder in ["corpus", "regressions", "fuzz_targets"] {
        for entry in entries(&fuzz_folder().join(folder)) {
            let name = entry.file_stem().and_then(|name| name.to_str());
            assert!(name.is_some_and(is_target), "{}", entry.display());
        }
    }
    for target in TARGETS {
        let program = format!("fuzz_targets/{}.rs", target.name);
        assert!(fuzz_folder().join(&program).is_file(), "{program}");
    }
}
