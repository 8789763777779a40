//! Random requests against a naive model: maps of labels.

use crate::fake::{OID_FIRST, System, create_cont, create_pool, destroy_cont, destroy_pool, label};
use proptest::prelude::*;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use types::{Code, ContId, PoolId};
use wire::control::{ControlReply, ControlRequest as R, Subject};

#[derive(Clone, Debug)]
enum Step {
    CreatePool(u8),
    DestroyPool(u8, bool),
    CreateCont(u8, u8),
    DestroyCont(u8, u8, bool),
    RenameCont(u8, u8, u8),
    Open(u8, u8),
    Close(u8),
    Attr(u8, u8, bool),
    Alloc(u8, u8, u8),
    Restart,
}

#[derive(Default)]
struct Cont {
    id: ContId,
    attr: bool,
    oid_next: u64,
    handles: BTreeSet<u64>,
}

#[derive(Default)]
struct Model {
    pools: BTreeMap<u8, (PoolId, BTreeMap<u8, Cont>)>,
}

fn pool_name(pool: u8) -> String {
    format!("p{pool}")
}

fn cont_name(cont: u8) -> String {
    format!("c{cont}")
}

fn code(reply: &types::Result<ControlReply>) -> Option<Code> {
    reply.as_ref().err().map(|error| error.code)
}

impl Model {
    fn cont(&mut self, pool: u8, cont: u8) -> Option<&mut Cont> {
        self.pools.get_mut(&pool)?.1.get_mut(&cont)
    }

    fn step(&mut self, system: &System, step: &Step) {
        match *step {
            Step::CreatePool(pool) => {
                let reply = system.run(create_pool(&pool_name(pool)));
                match self.pools.entry(pool) {
                    Entry::Occupied(_) => assert_eq!(code(&reply), Some(Code::Exist)),
                    Entry::Vacant(free) => {
                        let ControlReply::Pool(info) = reply.unwrap() else { panic!("no pool") };
                        free.insert((info.id, BTreeMap::new()));
                    }
                }
            }
            Step::DestroyPool(pool, force) => {
                let reply = system.run(destroy_pool(&pool_name(pool), force));
                match self.pools.get(&pool) {
                    None => assert_eq!(code(&reply), Some(Code::NonExist)),
                    Some((_, conts)) if !conts.is_empty() && !force => {
                        assert_eq!(code(&reply), Some(Code::Busy));
                    }
                    Some(_) => {
                        reply.unwrap();
                        self.pools.remove(&pool);
                    }
                }
            }
            Step::CreateCont(pool, cont) => {
                let reply = system.run(create_cont(&pool_name(pool), &cont_name(cont)));
                match self.pools.get_mut(&pool) {
                    None => assert_eq!(code(&reply), Some(Code::NonExist)),
                    Some((_, conts)) if conts.contains_key(&cont) => {
                        assert_eq!(code(&reply), Some(Code::Exist));
                    }
                    Some((_, conts)) => {
                        let ControlReply::Cont(info) = reply.unwrap() else {
                            panic!("no container")
                        };
                        conts.insert(
                            cont,
                            Cont { id: info.id, oid_next: OID_FIRST, ..Cont::default() },
                        );
                    }
                }
            }
            Step::DestroyCont(pool, cont, force) => {
                let request = destroy_cont(&pool_name(pool), &cont_name(cont), force);
                let reply = system.run(request);
                match self.cont(pool, cont) {
                    None => assert_eq!(code(&reply), Some(Code::NonExist)),
                    Some(held) if !held.handles.is_empty() && !force => {
                        assert_eq!(code(&reply), Some(Code::Busy));
                    }
                    Some(_) => {
                        reply.unwrap();
                        self.pools.get_mut(&pool).unwrap().1.remove(&cont);
                    }
                }
            }
            Step::RenameCont(pool, from, to) => {
                let reply = system.run(R::SetProps {
                    subject: Subject::Cont(label(&pool_name(pool)), label(&cont_name(from))),
                    props: [("label".to_string(), cont_name(to))].into(),
                });
                let is_taken = from != to && self.cont(pool, to).is_some();
                match self.pools.get_mut(&pool) {
                    Some((_, conts)) if conts.contains_key(&from) && is_taken => {
                        assert_eq!(code(&reply), Some(Code::Exist));
                    }
                    Some((_, conts)) if conts.contains_key(&from) => {
                        reply.unwrap();
                        let held = conts.remove(&from).unwrap();
                        conts.insert(to, held);
                    }
                    _ => assert_eq!(code(&reply), Some(Code::NonExist)),
                }
            }
            Step::Open(pool, cont) => {
                let reply = system.run(R::ContOpen {
                    pool: label(&pool_name(pool)),
                    cont: label(&cont_name(cont)),
                    ask: crate::cases_handles::ask(crate::cases_handles::RW),
                });
                match self.cont(pool, cont) {
                    None => assert_eq!(code(&reply), Some(Code::NonExist)),
                    Some(held) => {
                        let ControlReply::ContOpened { handle, cont, .. } = reply.unwrap() else {
                            panic!("not opened");
                        };
                        assert!(held.handles.insert(handle));
                        assert_eq!(
                            (cont.id, cont.handle_count),
                            (held.id, held.handles.len() as u64)
                        );
                    }
                }
            }
            Step::Close(nth) => {
                let conts = self.pools.values_mut().flat_map(|(_, conts)| conts.values_mut());
                let mut held: Vec<&mut Cont> =
                    conts.filter(|cont| !cont.handles.is_empty()).collect();
                if !held.is_empty() {
                    let at = nth as usize % held.len();
                    let handle = held[at].handles.pop_first().unwrap();
                    system.run(R::ContClose { handle }).unwrap();
                    let again = system.run(R::ContClose { handle });
                    assert_eq!(code(&again), Some(Code::BadHandle));
                }
            }
            Step::Attr(pool, cont, is_set) => {
                let value = is_set.then(|| vec![cont]);
                let reply = system.run(R::SetAttrs {
                    subject: Subject::Cont(label(&pool_name(pool)), label(&cont_name(cont))),
                    attrs: [("a".to_string(), value)].into(),
                });
                match self.cont(pool, cont) {
                    None => assert_eq!(code(&reply), Some(Code::NonExist)),
                    Some(held) if !is_set && !held.attr => {
                        assert_eq!(code(&reply), Some(Code::NoAttr));
                    }
                    Some(held) => {
                        reply.unwrap();
                        held.attr = is_set;
                    }
                }
            }
            Step::Alloc(pool, cont, count) => {
                let Some((id, _)) = self.pools.get(&pool) else { return };
                let id = *id;
                let Some(held) = self.cont(pool, cont) else { return };
                let request = R::AllocOids { pool: id, cont: held.id, count: count as u64 + 1 };
                assert_eq!(system.run(request).unwrap(), ControlReply::Oids(held.oid_next));
                held.oid_next += count as u64 + 1;
            }
            Step::Restart => {
                for (_, conts) in self.pools.values_mut() {
                    conts.values_mut().for_each(|cont| cont.handles.clear());
                }
            }
        }
    }

    fn check(&self, system: &System) {
        let pools = system.pools();
        let labels: BTreeSet<String> = pools.iter().map(|pool| pool.label.clone()).collect();
        assert_eq!(labels, self.pools.keys().map(|pool| pool_name(*pool)).collect());
        for (pool, (_, conts)) in &self.pools {
            let name = label(&pool_name(*pool));
            let listed: BTreeMap<String, (ContId, u64)> = system
                .conts(&name)
                .into_iter()
                .map(|cont| (cont.label, (cont.id, cont.handle_count)))
                .collect();
            let expected: BTreeMap<String, (ContId, u64)> = conts
                .iter()
                .map(|(cont, held)| (cont_name(*cont), (held.id, held.handles.len() as u64)))
                .collect();
            assert_eq!(listed, expected);
            for (cont, held) in conts {
                let subject = Subject::Cont(name.clone(), label(&cont_name(*cont)));
                let attrs = if held.attr { held.attr_value() } else { BTreeMap::new() };
                let ControlReply::Attrs(found) = system.run(R::GetAttrs { subject }).unwrap()
                else {
                    panic!("no attributes");
                };
                assert_eq!(found.keys().collect::<Vec<_>>(), attrs.keys().collect::<Vec<_>>());
            }
        }
        system.assert_in_step();
    }
}

impl Cont {
    fn attr_value(&self) -> BTreeMap<String, ()> {
        BTreeMap::from([("a".to_string(), ())])
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let (pool, cont) = (0u8..2, 0u8..3);
    prop_oneof![
        3 => pool.clone().prop_map(Step::CreatePool),
        1 => (pool.clone(), any::<bool>()).prop_map(|(p, f)| Step::DestroyPool(p, f)),
        6 => (pool.clone(), cont.clone()).prop_map(|(p, c)| Step::CreateCont(p, c)),
        2 => (pool.clone(), cont.clone(), any::<bool>())
            .prop_map(|(p, c, f)| Step::DestroyCont(p, c, f)),
        2 => (pool.clone(), cont.clone(), cont.clone())
            .prop_map(|(p, a, b)| Step::RenameCont(p, a, b)),
        3 => (pool.clone(), cont.clone()).prop_map(|(p, c)| Step::Open(p, c)),
        2 => any::<u8>().prop_map(Step::Close),
        2 => (pool.clone(), cont.clone(), any::<bool>()).prop_map(|(p, c, s)| Step::Attr(p, c, s)),
        2 => (pool, cont, any::<u8>()).prop_map(|(p, c, n)| Step::Alloc(p, c, n)),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn the_service_does_what_the_model_does(steps in prop::collection::vec(any_step(), 1..50)) {
        let mut system = System::new(2);
        let mut model = Model::default();
        for step in &steps {
            if matches!(step, Step::Restart) {
                system = system.restarted();
            }
            model.step(&system, step);
        }
        model.check(&system);
    }
}
