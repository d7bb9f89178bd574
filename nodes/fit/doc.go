// Package fit sizes scale-ups by packing the pods that wait onto what could run them, and judges by the same predicates whether the
// pods of a node that is to go fit the others.
//
// What a pod's placement depends on beyond CPU and memory travels through the node plane as a text (nodes.Pod.Scheduling) that
// Encode writes and Decode reads, so that pods of one kind are counted instead of listed.
package fit
