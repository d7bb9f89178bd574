//go:build !unix

package main

func yieldToBroker() {}
