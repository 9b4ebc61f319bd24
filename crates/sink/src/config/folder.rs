//! Connector files by the folder.

use std::path::{Path, PathBuf};

use super::problem::ConfigProblem;

/// The files, with those of each folder in its place: `*.properties` and `*.json`, by name.
pub(super) fn with_files_of_folders(
    paths: &[PathBuf],
    problems: &mut Vec<ConfigProblem>,
) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let of_folder = files_of(path).and_then(|of_folder| match of_folder.as_slice() {
                [] => Err("holds no *.properties and no *.json file".to_owned()),
                _ => Ok(of_folder),
            });
            match of_folder {
                Ok(of_folder) => files.extend(of_folder),
                Err(message) => problems.push(ConfigProblem::of_file(path, message)),
            }
        } else {
            files.push(path.clone());
        }
    }
    files
}

/// Those of them that are there, where any file or folder is: a folder may have become empty.
pub(super) fn with_files_that_are_left(
    paths: &[PathBuf],
    problems: &mut Vec<ConfigProblem>,
) -> Vec<PathBuf> {
    let is_gone = |path: &PathBuf| matches!(path.try_exists(), Ok(false));
    if paths.iter().all(is_gone) {
        return with_files_of_folders(paths, problems);
    }
    let is_empty = |path: &PathBuf| path.is_dir() && files_of(path).is_ok_and(|of| of.is_empty());
    let left = paths
        .iter()
        .filter(|path| !is_gone(path) && !is_empty(path));
    let left: Vec<_> = left.cloned().collect();
    with_files_of_folders(&left, problems)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("can't be read: {error}");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if matches!(kind, Some("properties" | "json")) && !path.is_dir() {
            files.push(path);
        }
    }
    if files.len() > FILES_MAX {
        return Err(format!("holds more than {FILES_MAX} connector files"));
    }
    files.sort();
    Ok(files)
}

/// More are a mistake.
const FILES_MAX: usize = 1000;
