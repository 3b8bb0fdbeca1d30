// Package experiment runs experiments in the simulator: an experiment names a fleet, a workload, policies and
// assertions; RunExperiment runs every policy with every seed through chaos/sim, summarizes, and reports for each
// assertion whether it holds and by which figures. PlanCapacity answers the inverse question: how many workers a
// trace needs.
//
// An experiment is a file (DecodeExperiment) that is validated before it runs: an unknown GPU or policy, a malformed
// assertion, and an objective that no worker of the fleet can meet are mistakes with a line, a caret and a hint. The
// catalogue E1-E16 is in the folder catalogue, a file with a question and its assertions for each; `spillway simulate list`
// shows them.
//
// Only measured figures are reported: a quantile among requests that were refused or cut has no value, the report
// states that, and an assertion that depends on it does not hold. Assertions are never weakened, and an experiment
// that the simulator cannot run yet states what it needs and does not pass. The same experiment with the same seeds has the same report to the
// last byte, with any number of cores.
//
// Some experiments are tests of this package, because they run more or less than the simulator: the step of demand
// (TestStepTable) and the halved region (TestSpillTable) run a fleet of real tiers in memory, TestE11 the planner alone, and the
// oracle tests (TestAgentsHitAsMuchAsTheOracle) caches alone. Package compare compares the policies of one zone of real tiers.
//
// Loads of the catalogue never depend on the result of the tested policy. They are its own figures, or fractions of the
// knee of a simple policy (round robin or least requests) that the run measures first; each file states which. Unless stated
// otherwise, signals are as old as in production: workers are scraped once a second. That is coarser than the 50 to 500 ms
// of the publications, which E3 and E9 vary.
package experiment
