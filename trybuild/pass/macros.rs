//! Awaits in the macros whose arguments are expressions.
#![deny(warnings)]

use std::fmt::Write;

#[durable::effect(read_only)]
async fn look(query: &str) -> Option<u64> {
    Some(query.len() as u64)
}

#[durable::workflow]
async fn all_macros(word: String) -> Result<String, String> {
    let v = vec![look("a").await, look("b").await];
    let w = vec![look("c").await; 3];
    let none: Vec<u64> = vec![];
    let s = format!("{} {word:?} {x:?} {0:?}", look("d").await.unwrap_or(0), x = look("e").await);
    let t = std::format!("{word}");
    assert!(look("f").await.is_some(), "bad {s} {}", t);
    assert!(matches!(look("g").await, Some(n) if n > 0));
    assert_eq!(look("h").await, Some(1), "not {:?}", look("i").await);
    assert_ne!(look("j").await, None,);
    debug_assert!(look("k").await.is_some());
    debug_assert_eq!(look("l").await, Some(1));
    println!("{:?} {w:?} {none:?}", look("m").await);
    eprint!("{v:?}");
    let mut out = String::new();
    write!(out, "{:?}", look("n").await).map_err(|error| error.to_string())?;
    writeln!(&mut out, "{s}").map_err(|error| error.to_string())?;
    let n = dbg!(look("o").await);
    if n.is_none() {
        panic!("nothing but {:?}", look("p").await);
    }
    if out.is_empty() {
        unreachable!("{:?}", look("q").await)
    }
    let steps = vec![async { look("r").await }];
    durable::join_all(steps).await;
    match look("s").await {
        Some(0) => todo!(),
        Some(1) => unimplemented!("{:?}", look("t").await),
        _ => Ok(out),
    }
}

fn main() {
    let _ = all_macros(String::new());
}
