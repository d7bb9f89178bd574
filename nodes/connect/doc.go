// Package connect puts a node plane together from settings: it reads the settings of the policy and of every adapter, from a file,
// the environment and flags, complains about all that is wrong at once, and opens what they name.
//
// The daemon, the commands and the Lambda function all start here. So it links the adapters and nothing else: no broker, no SQL
// database, no query engine.
package connect
