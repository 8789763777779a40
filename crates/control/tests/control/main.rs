//! Tests of the control plane from outside: requests in, answers and orders out.

mod cases_aims;
mod cases_catalog;
mod cases_cont;
mod cases_copy;
mod cases_etcd;
mod cases_etcd_faults;
mod cases_handles;
mod cases_join;
mod cases_leads;
mod cases_members;
mod cases_moved;
mod cases_pool;
mod cases_props;
mod cases_room;
mod cases_snaps;
mod cases_stores;
mod cases_times;
mod cases_told;
mod cases_weights;
mod concurrency;
mod contract;
mod crash;
mod etcd_server;
mod fake;
mod golden;
mod model;
