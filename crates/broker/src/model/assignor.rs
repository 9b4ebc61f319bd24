//! Which member reads which partitions: the `simple` assignor (KIP-932).
//!
//! Each partition goes to `ceil(members / partitions)` members, so that with fewer members than
//! partitions it has one reader; members have as many partitions as each other, or one more. What a
//! member has it keeps where that allows it.

use std::collections::{BTreeMap, BTreeSet};

use super::topics::Place;

/// What each member has.
pub type Targets = BTreeMap<String, BTreeSet<Place>>;

/// Assigns anew. `wanted` is what each member could have by its subscription; `current` what each
/// has now.
#[must_use]
pub fn assign(wanted: &Targets, current: &Targets) -> Targets {
    let mut targets = Targets::new();
    // Members of one subscription are balanced among themselves.
    let mut groups: BTreeMap<&BTreeSet<Place>, Vec<&String>> = BTreeMap::new();
    for (member, places) in wanted {
        groups.entry(places).or_default().push(member);
    }
    for (places, members) in groups {
        assign_alike(places, &members, current, &mut targets);
    }
    targets
}

fn assign_alike(
    places: &BTreeSet<Place>,
    members: &[&String],
    current: &Targets,
    targets: &mut Targets,
) {
    if places.is_empty() {
        targets.extend(
            members
                .iter()
                .map(|member| ((*member).clone(), BTreeSet::new())),
        );
        return;
    }
    let sharing = members.len().div_ceil(places.len());
    let total = sharing * places.len();
    let (quota, extra) = (total / members.len(), total % members.len());
    let mut readers: BTreeMap<Place, usize> = places.iter().map(|place| (*place, 0)).collect();
    let quota_of = |index: usize| quota + usize::from(index < extra);
    let mut shares: Vec<BTreeSet<Place>> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let had = current.get(*member).into_iter().flatten();
        let mut kept = BTreeSet::new();
        // The newest partitions first: the oldest are given up.
        for place in had.collect::<Vec<_>>().into_iter().rev() {
            if let Some(count) = readers.get_mut(place)
                && *count < sharing
                && kept.len() < quota_of(index)
            {
                *count += 1;
                kept.insert(*place);
            }
        }
        shares.push(kept);
    }
    for (index, share) in shares.iter_mut().enumerate() {
        while share.len() < quota_of(index) {
            let free = readers
                .iter()
                .filter(|(place, count)| **count < sharing && !share.contains(*place));
            let Some(place) = free
                .min_by_key(|(_, count)| **count)
                .map(|(place, _)| *place)
            else {
                break;
            };
            *readers.entry(place).or_default() += 1;
            share.insert(place);
        }
    }
    // Whatever the quotas left over still needs a reader.
    for (place, count) in readers.iter().filter(|(_, count)| **count == 0) {
        debug_assert_eq!(*count, 0);
        if let Some(share) = shares.iter_mut().min_by_key(|share| share.len()) {
            share.insert(*place);
        }
    }
    targets.extend(members.iter().map(|member| (*member).clone()).zip(shares));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sharegroup_wire::TopicId;

    fn places(count: i32) -> BTreeSet<Place> {
        (0..count).map(|index| (TopicId::ZERO, index)).collect()
    }

    fn wanted(members: &[&str], partitions: i32) -> Targets {
        members
            .iter()
            .map(|member| ((*member).to_owned(), places(partitions)))
            .collect()
    }

    fn indexes(targets: &Targets, member: &str) -> Vec<i32> {
        targets[member].iter().map(|(_, index)| *index).collect()
    }

    #[test]
    fn members_come_and_go_as_measured_on_a_real_coordinator() {
        let one = assign(&wanted(&["a"], 2), &Targets::new());
        assert_eq!(indexes(&one, "a"), [0, 1]);
        let two = assign(&wanted(&["a", "b"], 2), &one);
        assert_eq!((indexes(&two, "a"), indexes(&two, "b")), (vec![1], vec![0]));
        let three = assign(&wanted(&["a", "b", "c"], 2), &two);
        assert_eq!(indexes(&three, "a"), [0, 1]);
        assert_eq!(
            (indexes(&three, "b"), indexes(&three, "c")),
            (vec![0], vec![1])
        );
        let left = assign(&wanted(&["a", "b"], 2), &three);
        assert_eq!(
            (indexes(&left, "a"), indexes(&left, "b")),
            (vec![1], vec![0])
        );
    }

    proptest! {
        #[test]
        fn every_partition_has_a_reader_and_members_are_balanced(
            partitions in 1..20_i32, joins in prop::collection::vec(0..12_u8, 1..20),
        ) {
            let mut members: BTreeSet<String> = BTreeSet::new();
            let mut current = Targets::new();
            for join in joins {
                let member = join.to_string();
                if !members.remove(&member) {
                    members.insert(member);
                }
                let names: Vec<&str> = members.iter().map(String::as_str).collect();
                current = assign(&wanted(&names, partitions), &current);
                prop_assert_eq!(current.len(), names.len());
                if names.is_empty() {
                    continue;
                }
                let read: BTreeSet<Place> = current.values().flatten().copied().collect();
                prop_assert_eq!(read.len() as i32, partitions);
                let sizes = current.values().map(BTreeSet::len);
                prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{:?}", current);
            }
        }
    }
}
