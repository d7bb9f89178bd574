// Package event reads the events by which EventBridge announces that instances are interrupted. What brings them, a Lambda
// function's invocation or a queue, is others' business.
package event
