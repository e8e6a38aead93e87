//! What is kept by step: numbers are given in order, and most steps are over in about the order in which they began.

use std::{collections::VecDeque, fmt, ops::Index};

use crate::id::StepNo;

/// So many places may be empty, or kept for what comes, without being given back.
const SPARE: usize = 32;

/// A map by step. Numbers that come in order go to its end, and the number says where one is: a look and a removal cost the same
/// whatever the number of steps. It is as large as twice what is in it, however far the numbers are apart.
#[derive(Clone)]
pub(crate) struct ByStep<T> {
    /// Ascending; neither the first nor the last is empty.
    places: VecDeque<(StepNo, Option<T>)>,
    /// How many are not empty.
    len: usize,
}

impl<T> Default for ByStep<T> {
    fn default() -> Self {
        ByStep { places: VecDeque::new(), len: 0 }
    }
}

impl<T> ByStep<T> {
    fn place(&self, step: StepNo) -> Option<usize> {
        let first = self.places.front()?.0;
        // Numbers differ by one at least: it is there if none is left out, and nowhere behind.
        let most = (step.0.checked_sub(first.0)? as usize).min(self.places.len() - 1);
        if self.places[most].0 == step {
            return Some(most);
        }
        self.places.binary_search_by_key(&step, |(no, _)| *no).ok()
    }

    pub(crate) fn get(&self, step: &StepNo) -> Option<&T> {
        self.places.get(self.place(*step)?)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, step: &StepNo) -> Option<&mut T> {
        let place = self.place(*step)?;
        self.places.get_mut(place)?.1.as_mut()
    }

    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
    }

    pub(crate) fn insert(&mut self, step: StepNo, value: T) -> Option<T> {
        if self.places.back().is_none_or(|(last, _)| *last < step) {
            self.places.push_back((step, Some(value)));
            self.len += 1;
            return None;
        }
        let before = match self.places.binary_search_by_key(&step, |(no, _)| *no) {
            Ok(place) => self.places[place].1.replace(value),
            Err(place) => {
                self.places.insert(place, (step, Some(value)));
                None
            }
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Forgets the step, if it is there: answers what `last` makes of what was kept of it.
    pub(crate) fn remove<R>(&mut self, step: &StepNo, last: impl FnOnce(&mut T) -> R) -> Option<R> {
        let place = self.place(*step)?;
        let (_, kept) = self.places.get_mut(place)?;
        // Not moved out: it may be large.
        let answer = last(kept.as_mut()?);
        *kept = None;
        self.len -= 1;
        if self.len == 0 {
            self.places.clear();
        }
        while self.places.front().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > SPARE + 2 * self.len {
            self.places.retain(|(_, value)| value.is_some());
        }
        if self.places.capacity() > SPARE + 4 * self.len {
            self.places.shrink_to(2 * self.len);
        }
        Some(answer)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&StepNo, &T)> {
        self.places.iter().filter_map(|(step, value)| Some((step, value.as_ref()?)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &StepNo> {
        self.iter().map(|(step, _)| step)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    #[cfg(test)]
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|(_, value)| value.as_mut())
    }
}

impl<T> Index<&StepNo> for ByStep<T> {
    type Output = T;

    fn index(&self, step: &StepNo) -> &T {
        match self.get(step) {
            Some(value) => value,
            None => panic!("nothing is kept of step {step}"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ByStep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Does the same to a `ByStep` and to a `BTreeMap`.
    #[derive(Default)]
    struct Both {
        by_step: ByStep<u32>,
        map: BTreeMap<StepNo, u32>,
    }

    impl Both {
        fn insert(&mut self, step: u32) {
            assert_eq!(self.by_step.insert(StepNo(step), step), self.map.insert(StepNo(step), step));
            self.check(step);
        }

        fn remove(&mut self, step: u32) {
            assert_eq!(self.by_step.remove(&StepNo(step), |kept| *kept), self.map.remove(&StepNo(step)));
            self.check(step);
        }

        fn check(&self, around: u32) {
            for step in (around.saturating_sub(3)..around + 3).map(StepNo) {
                assert_eq!(self.by_step.get(&step), self.map.get(&step));
                assert_eq!(self.by_step.clone().get_mut(&step), self.map.clone().get_mut(&step));
            }
            assert!(self.by_step.places.len() <= SPARE + 2 * self.map.len(), "{:?}", self.by_step.places);
        }

        fn check_all(&self) {
            assert!(self.by_step.iter().eq(&self.map) && self.by_step.values().eq(self.map.values()));
            assert_eq!(format!("{:?}", self.by_step), format!("{:?}", self.map));
        }
    }

    #[test]
    fn it_is_a_map_in_whatever_order_steps_come_and_go() {
        let mut both = Both::default();
        let mut random = 7_u32;
        for round in 0..4_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Now more come than go, now fewer.
            let step = (random >> 16) % 200 + round / 40;
            if (random >> 8) % 8 < if round / 500 % 2 == 0 { 6 } else { 2 } {
                both.insert(step)
            } else {
                both.remove(step)
            }
            both.check_all();
        }
    }

    #[test]
    fn a_step_that_stays_open_does_not_keep_the_places_of_those_after_it() {
        let mut both = Both::default();
        both.insert(0);
        for step in 1..10_000 {
            both.insert(step);
            if step > 5 {
                both.remove(step - 5);
            }
        }
        both.check_all();
        let capacity = both.by_step.places.capacity();
        assert!(capacity < 128, "{capacity}");
    }

    #[test]
    fn the_room_of_many_steps_is_given_back_when_they_are_over() {
        let mut both = Both::default();
        (0..1_000).for_each(|step| both.insert(step));
        (1..1_000).rev().for_each(|step| both.remove(step));
        both.check_all();
        assert!(both.by_step.places.capacity() <= SPARE + 4);
        both.remove(0);
        both.remove(0);
        both.check_all();
    }
}
