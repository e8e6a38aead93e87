//! What keeps a cancel away from a place in the code.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

#[cfg(test)]
use crate::sim::{Broken, is_broken};

/// The shields around a place, from the inside out. A step that outlives a shield is left with those around that.
#[derive(Clone, Default)]
pub(super) struct Shelter(Option<Arc<Around>>);

enum Around {
    Shield {
        open: AtomicBool,
        around: Shelter,
    },
    /// The inside of what may be awaited here and then there: a set, a step that was begun.
    Moving(Mutex<Shelter>),
}

impl Shelter {
    /// The inside of a shield that is opened here.
    pub(super) fn shield(&self) -> Shelter {
        Shelter(Some(Arc::new(Around::Shield { open: AtomicBool::new(true), around: self.clone() })))
    }

    /// The inside of what is here now, and may be moved.
    pub(super) fn moving(&self) -> Shelter {
        Shelter(Some(Arc::new(Around::Moving(Mutex::new(self.clone())))))
    }

    /// What is in it is awaited there now.
    pub(super) fn move_to(&self, place: &Shelter) {
        #[cfg(test)]
        if is_broken(Broken::ShieldNotEntered) && place.is_shielded()
            || is_broken(Broken::ShieldNeverOver) && self.is_shielded()
        {
            return;
        }
        if let Some(Around::Moving(at)) = self.0.as_deref() {
            *at.lock().unwrap_or_else(PoisonError::into_inner) = place.clone();
        }
    }

    /// The shield is over; false if it is none.
    pub(super) fn close(&self) -> bool {
        #[cfg(test)]
        if is_broken(Broken::ShieldNeverOver) {
            return false;
        }
        match self.0.as_deref() {
            Some(Around::Shield { open, .. }) => open.swap(false, Ordering::Relaxed),
            _ => false,
        }
    }

    /// Whether one of the shields is open.
    pub(super) fn is_shielded(&self) -> bool {
        let mut at = self.clone();
        while let Some(around) = at.0 {
            at = match &*around {
                Around::Shield { open, .. } if open.load(Ordering::Relaxed) => return true,
                Around::Shield { around, .. } => around.clone(),
                Around::Moving(at) => at.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_outlives_a_shield_has_those_around_it() {
        let outside = Shelter::default();
        let outer = outside.shield();
        let inner = outer.shield();
        assert!(!outside.is_shielded() && outer.is_shielded() && inner.is_shielded());
        assert!(inner.close() && inner.is_shielded());
        assert!(outer.close() && !inner.is_shielded() && !outer.is_shielded());
        assert!(!outer.close() && !outside.close());
    }

    #[test]
    fn what_is_moved_has_the_shields_of_where_it_is() {
        let outside = Shelter::default();
        let set = outside.moving();
        let (shield, inside) = (outside.shield(), set.clone());
        assert!(!inside.is_shielded());
        set.move_to(&shield);
        assert!(inside.is_shielded() && inside.shield().is_shielded());
        shield.close();
        assert!(!inside.is_shielded());
        shield.move_to(&outside);
        assert!(!set.close());
    }
}
