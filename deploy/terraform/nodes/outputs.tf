# Generated from deploy/cloudformation/muster.yaml: go -C deploy/terraform/generate run .

output "state_table_name" {
  description = "STATE_TABLE"
  value       = aws_dynamodb_table.state_table.name
}

output "logs_table_name" {
  description = "LOGS_TABLE"
  value       = aws_dynamodb_table.logs_table.name
}

output "node_plane_policy_arn" {
  description = "For the daemon's role and for those who run the doctor"
  value       = aws_iam_policy.node_plane_policy.arn
}

output "diagnose_policy_arn" {
  description = "For the daemon's role and for those who run the doctor"
  value       = aws_iam_policy.diagnose_policy.arn
}

output "operator_policy_arn" {
  description = "For people"
  value       = aws_iam_policy.operator_policy.arn
}

output "queue_policy_arn" {
  description = "For the daemon's role"
  value       = local.daemon ? aws_iam_policy.queue_policy[0].arn : null
}

output "interruption_queue" {
  description = "INTERRUPTION_QUEUE"
  value       = local.daemon ? aws_sqs_queue.interruptions[0].url : null
}

output "dead_letter_queue" {
  description = "Events that could not be handled"
  value       = aws_sqs_queue.dead_letters.url
}
