// Command dnsbench measures what an answer of the global tier's DNS server costs, beside other servers that steer by
// place: the same names, the same database, the same questions, each on the same core in turns. It counts CPU time per
// answered query, checks every answer's region, and counts what stays unanswered and what a resolver would have to
// remember. Peers are used where they are installed. It never decides what a good answer is: the database does.
//
// All servers run from the beginning and are asked in short turns, so that a machine that others use too slows all of
// them alike. Compare ratios, and only those of one run.
package main
