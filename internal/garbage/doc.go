// Package garbage sets how often a process collects its garbage, by how large its live data are and by how much it makes.
// An operator's GOGC goes before all of it. It never calls for a collection, but to give back memory that a busy time has
// left behind.
package garbage
