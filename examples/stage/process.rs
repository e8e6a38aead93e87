//! The other processes of the story.

use std::{
    env,
    ffi::OsStr,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

/// How long a process may say nothing before the story is given up. Nothing here takes long; a busy machine may.
const PATIENCE: Duration = Duration::from_secs(60);

/// For the other side: calls `on_line` for each line on standard input, and ends this process where it ends, as it does
/// when whoever started this process was killed.
pub(crate) fn end_with_parent(mut on_line: impl FnMut() + Send + 'static) {
    thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).for_each(|_| on_line());
        std::process::exit(1);
    });
}

/// A process, and the lines it prints. It is killed and reaped when this is dropped, so that no way out of the story leaves
/// one behind.
pub(crate) struct Process {
    role: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program again, in a role.
    pub(crate) fn start(role: &'static str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Process> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(role).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start the {role}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            let printed = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
            printed.map_while(Result::ok).try_for_each(|text| line.send(text))
        });
        Ok(Process { role, child, stdin, lines })
    }

    /// The next line it prints; `None` once it has ended.
    fn next_line(&self) -> Result<Option<String>> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("the {} has said nothing for {PATIENCE:?}", self.role),
        }
    }

    /// The next line it prints.
    pub(crate) fn line(&self) -> Result<String> {
        self.next_line()?.with_context(|| format!("the {} has ended early", self.role))
    }

    /// Sends it a line.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("it takes no input")?;
        writeln!(stdin, "{line}").with_context(|| format!("cannot reach the {}", self.role))
    }

    /// Kills it with SIGKILL. What it had printed, and how it ended.
    pub(crate) fn kill(mut self) -> Result<(Vec<String>, ExitStatus)> {
        self.child.kill()?;
        let lines = self.rest()?;
        Ok((lines, self.child.wait()?))
    }

    /// Waits until it has ended well. What it printed.
    pub(crate) fn finish(mut self) -> Result<Vec<String>> {
        let lines = self.rest()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} failed: {status}", self.role);
        Ok(lines)
    }

    fn rest(&self) -> Result<Vec<String>> {
        std::iter::from_fn(|| self.next_line().transpose()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
