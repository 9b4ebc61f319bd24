//! Writes the seeds into a folder, one folder for each target: `seeds FOLDER`.

use std::fs;
use std::io;
use std::path::PathBuf;

use sharegroup_fuzz_targets::seeds::seeds;

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: seeds FOLDER"))?;
    for (index, seed) in seeds()?.iter().enumerate() {
        let folder = folder.join(seed.target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{index:05}")), &seed.input)?;
    }
    Ok(())
}
