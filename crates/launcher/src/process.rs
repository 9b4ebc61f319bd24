//! Programs, signals and deadlines, with the standard library alone.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

/// How often a process or port is looked at while waiting for it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The program `name` on the path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

/// Sends `signal` (a name such as `TERM`) to the process.
///
/// Through the shell, whose `kill` is built in: there is none in the standard library.
pub(crate) fn send_signal(pid: u32, signal: &str) -> io::Result<()> {
    let status = Command::new("sh")
        .args([
            "-c",
            "kill -s \"$1\" \"$2\"",
            "sh",
            signal,
            &pid.to_string(),
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "kill -s {signal} {pid}: {status}"
        )))
    }
}

/// Waits for the child until the deadline; `None` when it still runs then.
pub(crate) fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Runs a command to its end and gathers its output; `None` when it was killed at the deadline.
pub(crate) fn output_within(
    command: &mut Command,
    timeout: Duration,
) -> io::Result<Option<Output>> {
    let deadline = Instant::now() + timeout;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().map(read_all);
    let stderr = child.stderr.take().map(read_all);
    let Some(status) = wait_until(&mut child, deadline)? else {
        child.kill()?;
        child.wait()?;
        return Ok(None);
    };
    let join = |reader: Option<thread::JoinHandle<Vec<u8>>>| {
        reader.and_then(|r| r.join().ok()).unwrap_or_default()
    };
    Ok(Some(Output {
        status,
        stdout: join(stdout),
        stderr: join(stderr),
    }))
}

/// Both streams of a finished command as text.
pub(crate) fn text_of(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text.trim_end().to_owned()
}

/// The command line of a process, words joined by spaces; `None` when there is no such process or it is a zombie.
pub(crate) fn command_line(pid: u32) -> Option<String> {
    let words = match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).replace('\0', " "),
        Err(_) if fs::exists("/proc/self/cmdline").unwrap_or(false) => return None,
        Err(_) => {
            let ps = Command::new("ps")
                .args(["-ww", "-o", "args=", "-p", &pid.to_string()])
                .output()
                .ok()?;
            String::from_utf8_lossy(&ps.stdout).into_owned()
        }
    };
    Some(words.trim().to_owned()).filter(|words| !words.is_empty())
}

fn read_all(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        drop(stream.read_to_end(&mut bytes));
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_both_streams_is_gathered() {
        let output = output_within(
            &mut sh("echo out; echo err >&2; exit 3"),
            Duration::from_secs(10),
        )
        .unwrap()
        .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(text_of(&output), "out\nerr");
    }

    #[test]
    fn command_is_killed_at_the_deadline() {
        assert!(
            output_within(Command::new("sleep").arg("60"), Duration::from_millis(50))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn signal_reaches_the_process() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        // For a moment after the spawn the process is not yet the program.
        while !command_line(child.id()).is_some_and(|line| line.contains("sleep")) {
            thread::yield_now();
        }
        send_signal(child.id(), "TERM").unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(command_line(child.id()), None);
    }
}
