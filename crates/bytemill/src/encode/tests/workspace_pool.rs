use super::*;

fn workspace() -> Box<Workspace> {
    Box::new(Workspace::new().unwrap())
}

#[test]
fn a_workspace_returns_only_to_its_owner() {
    let (one, other) = (Owner::new(), Owner::new());
    let mut idle = Idle::default();
    let kept = workspace();
    let address = &raw const *kept;
    assert_eq!(idle.put_back(one, kept, usize::MAX).len(), 0);
    assert!(idle.take(other).is_none());
    assert_eq!(idle.take(one).map(|workspace| &raw const *workspace), Some(address));
    assert!(idle.take(one).is_none());
}

#[test]
fn the_least_recently_used_workspaces_are_dropped_first() {
    let owners: Vec<Owner> = (0..5).map(|_| Owner::new()).collect();
    let mut idle = Idle::default();
    let max_bytes = 3 * workspace().n_bytes();
    for &owner in &owners[..3] {
        assert_eq!(idle.put_back(owner, workspace(), max_bytes).len(), 0);
    }
    let used = idle.take(owners[0]).unwrap();
    assert_eq!(idle.put_back(owners[0], used, max_bytes).len(), 0);
    for (&owner, given_up) in owners[3..].iter().zip([owners[1], owners[2]]) {
        let surplus = idle.put_back(owner, workspace(), max_bytes);
        assert_eq!(surplus.iter().map(|idle| idle.owner).collect::<Vec<_>>(), [given_up]);
    }
    assert!(idle.take(owners[1]).is_none() && idle.take(owners[0]).is_some());
    // One that is too large by itself does not stay.
    assert_eq!(Idle::default().put_back(owners[0], workspace(), 1).len(), 1);
}

#[test]
fn a_dropped_tokenizer_drops_its_workspaces() {
    let (one, other) = (Owner::new(), Owner::new());
    let mut idle = Idle::default();
    for owner in [one, other, one] {
        idle.put_back(owner, workspace(), usize::MAX);
    }
    assert_eq!(idle.discard(one).len(), 2);
    assert!(idle.take(one).is_none() && idle.take(other).is_some());
}
