//! What is begun in one place and awaited in others: outside of a shield, under it, and outside again.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use super::{
    controls::Control,
    effects::{Out, call, sort},
    make::{Carried, Carries, Spawned, Then},
    mix,
    prog::{CONTROL, Env, Exit, SITES, Val, go, says, spawning, told},
};
use crate::steps::{branch::branch, call::EffectCall, cancel::shield, combine::timeout, set::Set, spawn::Child, step};

/// The scope of all that is carried, and the name in it of what is.
pub(super) const CARRIED: &str = "carried";
pub(super) const THING: &str = "thing";
/// Published under the shield, before what is carried is awaited there first, and when it is over.
pub(super) const ENTERED: u64 = 100;
pub(super) const LEFT: u64 = 101;

/// What is carried.
enum Thing {
    Set {
        set: Set<EffectCall<Out>>,
        no: u64,
        sort: usize,
        added: u64,
    },
    /// `None`: it is not made yet, or its outcome was taken.
    Child {
        carried: Arc<Carried>,
        made: bool,
        child: Option<Child<Out>>,
    },
}

/// What is done under the shield.
type Under = Pin<Box<dyn Future<Output = Result<(Thing, u64), Exit>> + Send>>;

pub(super) async fn carry(carried: Arc<Carried>, env: Arc<Env>) -> Val {
    let mut thing = Thing::new(&carried, &env);
    thing.takes(carried.outside, &env).await;
    let (block, within) = (carried.block.clone(), env.clone());
    let (inside, stays) = (carried.inside, carried.after == 0);
    let under: Under = Box::pin(async move {
        let value = go(block, within.clone()).await?;
        says(&within, ENTERED, None).await;
        thing.takes(inside, &within).await;
        if stays {
            thing.ends(&within).await;
        }
        says(&within, LEFT, None).await;
        Ok((thing, value))
    });
    let (mut thing, value) = match CONTROL.get() {
        Control::ShieldIgnored => step(branch(under).named("shield"), &SITES[37]).await?,
        _ => step(shield(branch(under)), &SITES[37]).await?,
    };
    thing.takes(carried.after, &env).await;
    thing.ends(&env).await;
    Ok(value)
}

fn effect(no: u64, kind: usize, env: &Env) -> EffectCall<Out> {
    call(sort(kind, CONTROL.get()), no, env.seen(), false)
}

impl Thing {
    fn new(carried: &Arc<Carried>, env: &Env) -> Thing {
        match &carried.what {
            Carries::Set { no, sorts } => {
                let mut set = Set::new().named(THING);
                for (i, kind) in sorts.iter().enumerate() {
                    set.add(effect(mix(*no, i as u64), *kind, env));
                }
                Thing::Set { set, no: *no, sort: sorts[0], added: 0 }
            }
            Carries::Child { .. } => Thing::Child { carried: carried.clone(), made: false, child: None },
        }
    }

    async fn takes(&mut self, times: u64, env: &Arc<Env>) {
        for _ in 0..times {
            let value = self.take(env).await;
            env.note(value);
        }
    }

    /// One more step is added to a set, and one taken; a child is looked at.
    async fn take(&mut self, env: &Arc<Env>) -> u64 {
        match self {
            Thing::Set { set, no, sort, added } => {
                *added += 1;
                set.add(effect(mix(*no, 100 + *added), *sort + *added as usize, env));
                step(set.next(), &SITES[17]).await.as_ref().map_or(4, told)
            }
            Thing::Child { carried, made, child } => {
                let Carries::Child { spawned, ms } = &carried.what else { return 5 };
                if !std::mem::replace(made, true) {
                    *child = Some(step(spawning(spawned, env).named(THING), &SITES[26]).await);
                }
                let Some(open) = child else { return 6 };
                match step(timeout(Duration::from_millis(*ms), open), &SITES[28]).await {
                    Ok(out) => {
                        *child = None;
                        told(&out)
                    }
                    Err(_) => 2,
                }
            }
        }
    }

    /// A child is awaited for good, if it is to be.
    async fn ends(&mut self, env: &Arc<Env>) {
        let Thing::Child { carried, child, .. } = self else { return };
        if let Carries::Child { spawned: Spawned { then: Then::Awaited, .. }, .. } = &carried.what
            && let Some(child) = child.take()
        {
            env.note(told(&step(child, &SITES[27]).await));
        }
    }
}
