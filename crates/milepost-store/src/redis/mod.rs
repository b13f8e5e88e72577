//! Many nodes on one Redis: the keys that the outside knows, and beside them, without an end, all that Milepost needs.
//!
//! Every change is one Lua script, and scripts run one at a time. The scripts are in `lua`, each behind the parts that it
//! shares with others; `script` puts them together. What the outside sees (`plan:`, `task:`, `index:tenant:`, `ckpt:`) is
//! written with every change and never read back: it may expire, and nothing is lost. Only `lock:tenant:` is the lock
//! itself, so that a lock that has expired, or that another program holds, means what it says.
//!
//! Our own keys, behind the prefix and `mp:`; none of them ends by itself, except where it says so:
//!
//! | key | what it holds |
//! |---|---|
//! | `counters` | the last session, plan, task, letter, fence and entry that were given out; they only grow |
//! | `log` | everything in order; a position is a place in this list |
//! | `plans`, `plan-numbers`, `open`, `plan:N` | plans by name and number, those not ended, and each one's record |
//! | `tasks:PLAN`, `task-numbers`, `tenant:T`, `task:N` | tasks by plan, name and tenant, and each one's record |
//! | `events:N`, `snapshot:N`, `output:N` | a task's log, an image of a task with a long one, what its stages wrote |
//! | `ready:PLAN`, `undo:PLAN`, `idle:PLAN`, `line:T` | what waits: to run, to be undone, to go on, for a tenant |
//! | `ready-plans:KIND`, `undo-plans:KIND`, `due:KIND`, `recovery:KIND`, and `quiet…`, `silent:KIND` of plans that do not say | where a claim looks, by who can run it |
//! | `settled`, `asking`, `going`, `letgo:PLAN`, `letundo:PLAN`, `letline:T` | nodes that know their era, and that want to; tasks that were set going by themselves, and which of those are to run, to be undone, or in line |
//! | `locks`, `renew` | since when and under which fence a tenant is held; when to look at its lock again |
//! | `sessions`, `held:S`, `ended`, `nodes`, `node:NAME` | who is there until when, with which tasks; who was |
//! | `book:B`, `book-numbers:B`, `book-ends:B` | what is kept beside tasks: by key, in order, and by when it is over |
//! | `letter:N`, `letter-id:ID`, `letters:S` (an hour), `request:KEY` (a day), `tokens`, `refresh`, `loading` | the rest |
//!
//! Plans that have ended are kept. What the outside sees of them expires a week after their end.

mod address;
mod answer;
mod books;
mod called;
mod changes;
mod claim;
mod codec;
mod commit;
mod doubt;
mod durability;
mod import;
mod letters;
mod link;
mod nodes;
mod plans;
mod read;
mod script;
mod session;
mod shared;
mod store;
mod submit;
mod tokens;
mod update;

pub use store::RedisStore;
