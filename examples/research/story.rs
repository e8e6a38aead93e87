//! The story: what happens, in order, and what must hold at each point.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use durable::Runtime;
use serde_json::Value;

use crate::{
    agents::{PROGRESS, Progress, REPORT, SOURCE, STEER, TOPICS},
    ledger::Ledger,
    stage::{
        process::Process,
        tell::{Teller, check},
        terminal::Terminal,
    },
};

/// Plays it. An error names what did not hold.
pub(crate) fn play() -> Result<()> {
    // Dropped after the processes that use it.
    let world = tempfile::tempdir()?;
    let tell = Teller::new();
    let library = world.path().to_owned();
    let terminal = Terminal::new(&library.join("store"), tell)?;
    let story = Story { library, tell, terminal };
    println!("{}", tell.paint.title("an editor wants a report on five animals, and sends out five researchers"));
    println!("with one note missing it would be printed; with two it is given up, and all that was done is undone");

    let agents = story.sent_out()?;
    story.first_note(&agents)?;
    let agents = story.corrected_and_killed(agents)?;
    story.follows_the_correction(&agents)?;
    story.two_are_lost(&agents)?;
    story.given_up(agents)?;
    story.nothing_is_left()?;
    tell.held();
    Ok(())
}

struct Story {
    library: PathBuf,
    tell: Teller,
    /// A person's.
    terminal: Terminal,
}

impl Story {
    fn sent_out(&self) -> Result<Process> {
        self.tell.heading("five agents are sent out; each takes a desk, and waits for a source");
        let agents = self.start_agents()?;
        self.tell.hear("agents", &agents, &["take(place in the print shop): its body runs"])?;
        // They are runs of their own: whose body runs first is nobody's business.
        let mut desks = TOPICS.iter().map(|_| agents.line()).collect::<Result<Vec<_>>>()?;
        desks.sort();
        self.tell.say("agents", &desks);
        let mut expected = TOPICS.map(|topic| format!("take(desk for {topic}): its body runs"));
        expected.sort();
        check("what the researchers do", desks, expected)?;
        Ok(agents)
    }

    fn first_note(&self, agents: &Process) -> Result<()> {
        self.tell.heading("a librarian brings the first source, and the editor writes");
        self.bring("owls", r#""owls hunt by ear""#)?;
        self.writes_note(agents, "owls", "owls hunt by ear")?;
        self.tell.hear(
            "agents",
            agents,
            &[
                "write(draft 1): its body runs, with note on owls after 1",
                r#"progress: 1 notes, 0 missing, "draft 1 after 1""#,
            ],
        )
    }

    /// The correction is durable when the command returns, whatever becomes of the process that it is for.
    fn corrected_and_killed(&self, agents: Process) -> Result<Process> {
        self.tell
            .heading("a person corrects the editor; the process is killed before it has looked, and started again");
        self.terminal.run(&["signal", REPORT, STEER, r#""no jargon""#])?;
        let (more, status) = agents.kill()?;
        check("what the agents said while they waited", more, [""; 0])?;
        self.tell.say("agents", [format!("killed: {status}")]);
        let agents = self.start_agents()?;
        self.tell.hear("agents", &agents, &[r#"progress: 1 notes, 0 missing, "draft 1 after 1""#])?;
        Ok(agents)
    }

    fn follows_the_correction(&self, agents: &Process) -> Result<()> {
        self.tell.heading("the next draft follows the correction");
        self.bring("bees", r#""bees dance""#)?;
        self.writes_note(agents, "bees", "bees dance")?;
        self.tell.hear(
            "agents",
            agents,
            &[
                "write(draft 2): its body runs, with note on owls after 1; no jargon; note on bees after 1",
                r#"progress: 2 notes, 0 missing, "draft 2 after 3""#,
            ],
        )
    }

    fn two_are_lost(&self, agents: &Process) -> Result<()> {
        self.tell.heading("there is no source on bats: that researcher fails, and gives its desk back");
        self.bring("bats", "null")?;
        self.tell.hear(
            "agents",
            agents,
            &["give_back(desk for bats): its body runs", r#"progress: 2 notes, 1 missing, "draft 2 after 3""#],
        )?;
        self.tell.heading("a person cancels another one, which does the same");
        self.terminal.run(&["cancel", "research/eels", "too far", "--by", "kim"])?;
        self.tell.hear(
            "agents",
            agents,
            &["give_back(desk for eels): its body runs", r#"progress: 2 notes, 2 missing, "draft 2 after 3""#],
        )
    }

    fn given_up(&self, agents: Process) -> Result<()> {
        self.tell
            .heading("the last note comes in, two are missing: the editor gives up, and undoes it all, the last first");
        self.bring("ants", r#""ants farm""#)?;
        self.writes_note(&agents, "ants", "ants farm")?;
        let history = "note on owls after 1; no jargon; note on bees after 1; note on ants after 1";
        self.tell.hear("agents", &agents, &[format!("write(draft 3): its body runs, with {history}")])?;
        // Whoever looks at the progress may come after the first of these.
        let printed = agents.finish()?;
        let (progress, mut undone): (Vec<_>, Vec<_>) =
            printed.into_iter().partition(|line| line.starts_with("progress"));
        self.tell.say("agents", progress.iter().chain(&undone));
        let outcome = undone.pop().unwrap_or_default();
        ensure!(outcome.contains("2 of the notes are missing"), "the outcome is {outcome:?}");
        check("the last progress", progress, [r#"progress: 3 notes, 2 missing, "draft 3 after 4""#])?;
        let things = ["file for ants", "file for bees", "file for owls", "place in the print shop"];
        check("what the editor undoes", undone, things.map(|thing| format!("give_back({thing}): its body runs")))
    }

    /// After the end, from the store and from the library's own books.
    fn nothing_is_left(&self) -> Result<()> {
        self.tell.heading("what is left of it");
        self.terminal.run(&["runs"])?;
        for (run, state) in [
            (REPORT, "failed"),
            ("research/owls", "completed"),
            ("research/bees", "completed"),
            ("research/bats", "failed"),
            ("research/eels", "cancelled"),
            ("research/ants", "completed"),
        ] {
            let show: Value = serde_json::from_str(&self.terminal.ask(&["show", run, "--json"])?)?;
            check(&format!("the state of {run}"), show["state"].as_str(), Some(state))?;
        }
        check("what the editor published last", self.published()?, Some((3, 2)))?;

        let lines = Ledger::at(&self.library).lines()?;
        let mut books: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        lines.iter().for_each(|line| books.entry(&line.thing).or_default().push(line.change));
        let of_each =
            |kind: &str, topics: &[&str]| topics.iter().map(|topic| format!("{kind} for {topic}")).collect::<Vec<_>>();
        let mut taken = [of_each("desk", &TOPICS), of_each("file", &["owls", "bees", "ants"])].concat();
        taken.push("place in the print shop".to_owned());
        taken.sort();
        check("what was taken", books.keys().copied().collect::<Vec<_>>(), taken)?;
        for (thing, changes) in &books {
            check(&format!("the books on the {thing}"), &**changes, [1, -1])?;
        }
        self.tell.say("library", [format!("{} things taken, each once, and each given back once", books.len())]);
        Ok(())
    }

    fn start_agents(&self) -> Result<Process> {
        Process::start("attended-agents", [&self.library])
    }

    fn bring(&self, topic: &str, source: &str) -> Result<()> {
        self.terminal.run(&["signal", &format!("research/{topic}"), SOURCE, source]).map(drop)
    }

    /// A researcher has its source.
    fn writes_note(&self, agents: &Process, topic: &str, source: &str) -> Result<()> {
        self.tell.hear(
            "agents",
            agents,
            &[
                format!("write(note on {topic}): its body runs, with {source}"),
                format!("take(file for {topic}): its body runs"),
                format!("give_back(desk for {topic}): its body runs"),
            ],
        )
    }

    /// Notes and missing ones, as a reader of the store sees them after the run.
    #[tokio::main]
    async fn published(&self) -> Result<Option<(usize, usize)>> {
        let runtime = Runtime::builder().observe(self.library.join("store")).await?;
        let progress = runtime.run(REPORT).await?.published::<Progress>(PROGRESS).await?;
        runtime.shutdown(Duration::ZERO).await?;
        Ok(progress.map(|progress| (progress.notes, progress.missing)))
    }
}
