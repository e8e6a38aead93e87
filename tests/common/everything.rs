//! The workflow that uses everything, and the one with a single effect of a given contract.

use std::time::Duration;

use super::effects::{
    LONG, charge, flaky, invoice, is_in_doubt, linger, look_up, mail, refuse, save, ship, wire, wire_as_if_idempotent,
};

/// Every kind of step, two effects or more of each contract. What it returns does not depend on when it is killed.
#[durable::workflow]
pub(crate) async fn everything(order: String) -> durable::Result<String> {
    let version = durable::version("plan", 2).await;
    let (dice, id) = (durable::random::<u64>().await, durable::uuid().await);
    let policy = look_up(&order).await?;
    let began = durable::now().await;
    // Recorded arguments are compared on every replay: a fact that changed would park the run.
    save(&format!("{version} {dice} {id} {began:?}")).await?;

    let (saved, paid) = durable::join((save("draft"), async {
        let first = charge(&order, 100).await?;
        let second = charge(&order, 250).await?;
        durable::Result::<_>::Ok((first, second))
    }))
    .await;
    let (saved, _) = (saved?, paid?);
    let wired = wire("supplier").await?;
    let tried = flaky("oven").await?;
    durable::sleep(Duration::from_millis(15)).await;

    // The branch that loses is an outward body, and goes on until it is told; by a shutdown, even before it has lost.
    let won = durable::race((look_up("race"), linger("race"))).await?.ends_with("race");
    let begun = durable::begin(save("begun")).await;
    let mailed = mail("customer").await?;
    let bills = durable::join_all((0..4).map(|n| invoice(&format!("{order}-{n}")))).at_most(2).await;
    let bills = bills.into_iter().filter(Result::is_ok).count();
    let timed_out = durable::timeout(Duration::from_millis(10), linger("timeout")).await;
    let timed_out = timed_out.is_err() || timed_out.is_ok_and(|lingered| lingered.is_ok());
    let in_time = durable::timeout(LONG, mail("warehouse")).await.is_ok();

    let mut set = durable::Set::new();
    set.add(look_up("0"));
    set.add(look_up("1"));
    let mut taken = 0;
    while let Some(found) = set.next().await {
        found?;
        taken += 1;
        if taken == 1 {
            set.add(look_up("2"));
        }
    }

    let refused = refused(order.clone()).await.is_err();
    let shipped = shipped(&["by sea", "by air"]).await?;
    let both = durable::try_join((save("try"), refuse("try"))).await.is_err();
    let wired_again = wire("tax office").await?;
    let retried = flaky("kettle").await?;
    let begun = begun.await?;
    Ok(format!(
        "{policy}, {saved}, {wired}, {tried}, {won}, {mailed}, {bills} bills, {timed_out} {in_time}, {taken} taken, \
         {refused}, {shipped}, {both}, {wired_again}, {retried}, {begun}"
    ))
}

/// What [`everything`] returns.
pub(crate) fn everything_of(order: &str) -> String {
    format!(
        "found {order}, saved draft, wired supplier, at last oven, true, mailed customer, 4 bills, true true, \
         3 taken, true, shipped by sea and by air, true, wired tax office, at last kettle, saved begun"
    )
}

/// Returns early, by `?`, with a step still open.
#[durable::workflow]
async fn refused(order: String) -> durable::Result<String> {
    let _open = durable::begin(linger("refused")).await;
    let nothing = refuse(&order).await?;
    Ok(nothing)
}

/// A doubt is handed to the code, which looks no further.
#[durable::part]
async fn shipped(ways: &[&str]) -> durable::Result<String> {
    for way in ways {
        match ship(way).await {
            Ok(_) => {}
            Err(e) if is_in_doubt(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(format!("shipped {}", ways.join(" and ")))
}

/// One effect of the contract, then one that says what came of it.
#[durable::workflow]
pub(crate) async fn one(contract: String) -> durable::Result<String> {
    let got = match contract.as_str() {
        "read_only" => look_up("it").await,
        "idempotent" => save("it").await,
        "keyed" => charge("it", 100).await,
        "hold" => wire("it").await,
        "reconcile" => mail("it").await,
        "error" => ship("it").await,
        _ => wire_as_if_idempotent("it").await,
    };
    let got = match got {
        Ok(got) => got,
        Err(e) => format!("failed: {}", e.fault().map_or("no fault", |fault| fault.kind())),
    };
    save(&format!("notice of: {got}")).await
}
