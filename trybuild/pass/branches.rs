//! Branches borrow what is around them, and closures give them.
#![deny(warnings)]

use std::sync::Mutex;

#[durable::effect(read_only)]
async fn look(query: &str) -> Result<u64, String> {
    Ok(query.len() as u64)
}

#[durable::workflow]
async fn wide(words: Vec<String>) -> Result<u64, String> {
    let longest = Mutex::new(0);
    let one = |word| {
        let longest = &longest;
        async move {
            let n = look(word).await?;
            if let Ok(mut longest) = longest.lock() {
                *longest = n.max(*longest);
            }
            Ok::<_, String>(n)
        }
    };
    let all = durable::join_all(words.iter().map(|word| one(word))).await;
    let sum = all.into_iter().sum::<Result<u64, String>>()?;
    let mut left = vec![];
    let mut right = vec![];
    durable::join((
        async {
            for word in &words {
                left.push(look(word).await);
            }
        },
        async {
            for word in words.iter().rev() {
                right.push(look(word).await);
            }
        },
    ))
    .await;
    let nested = async { async { async { look("deep").await }.await }.await };
    let early = async {
        if left.is_empty() {
            return 0;
        }
        look("late").await.unwrap_or(1)
    };
    let (a, b) = durable::join((nested, early)).await;
    let again = look("again").named("second look").await?;
    let guarded = if let Some(Ok(first)) = right.first() && *first > a.clone()? { *first } else { 0 };
    Ok(sum + a? + b + again + guarded + longest.into_inner().unwrap_or_default())
}

fn main() {
    let _ = wide(vec![]);
}
