// Package audit judges what the workers of a group did with its messages. It is the one
// auditor of the project: the simulator, the tests in virtual time and the scenarios feed it
// facts in the order in which they happened, and it names each promise that was broken.
//
// An [Auditor] has a [Slot] for whatever one worker owns at a time, and a [Key] for each key,
// whose messages are numbered from 1 in the order in which they were published. A handler is a
// [Handling]; its [Standing] is asked for when it matters.
//
// # Rules
//
//	lost         a message that was acknowledged to its publisher, and that no fault has taken, is processed
//	             before it leaves the stream
//	twice        the result of a message is stored once, and doesn't change
//	order        a message of a key is begun and stored after the one before, and not again after a later one
//	one-handler  no two handlers of a slot run at a time, unless the earlier one's worker has interrupted it;
//	             one worker begins nothing while its own earlier handler runs, interrupted or not
//	zombie-fence beside a handler whose worker doesn't know yet that its lease is over, the next one begins
//	             with a higher fence
//	fence-grows  a worker with a valid lease has a higher fence than the former owners
//	fence-unique no two workers have the same fence of a slot
//	dead-letter  only a poison message is dead-lettered
//	unpublished  what is processed was published
//
// # Where the rules come from
//
// Three auditors came before this one, and differed. Each rule here is the strictest of the
// three that the others pass:
//
//   - The simulator checked order and one handler where a handler begins; the tests in virtual
//     time checked order only where a result is stored. Now both do both, which also finds a
//     message that is begun again after a later one.
//   - The tests in virtual time checked fences where a result is written, the simulator where a
//     slot is held. Now both check both: a write with a valid lease is never rejected.
//   - The simulator alone forbade a worker to begin beside its own interrupted handler, and
//     checked the fence beside a zombie.
//   - A result of a message that was not published was "lost" in virtual time, and a fault of
//     its own in the scenarios. It is "unpublished" now.
//
// What depends on the environment stays with the environment: how long the group may take
// (liveness), which fault explains a loss, and what the protocol's records may say.
package audit
