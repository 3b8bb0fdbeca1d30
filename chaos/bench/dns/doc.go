// Command dnsbench measures the cost of an answer of the global tier's DNS server next to other servers that steer by
// location: the same names, database and queries, each on the same core in turns. It measures CPU time per answered
// query, checks every answer's region, and counts lost queries and the entries that a resolver would have to cache.
// Peers are used if they are installed. The database determines which answers are right.
//
// All servers run from the start and are queried in short turns, so that other load on the machine slows all of them
// alike. Compare ratios, and only within one run.
package main
