# Generated from deploy/cloudformation/muster.yaml: go -C deploy/terraform/generate run .

terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }
}

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

locals {
  functions      = var.run_as == "lambda"
  daemon         = var.run_as == "daemon"
  has_secrets    = !(join("", var.secret_arns) == "")
  has_volume_key = !(var.volume_key_arn == "")
  has_topic      = !(var.alarm_topic_arn == "")
  may_spot       = var.spot == "true"
  aws_prices     = var.prices == "aws"
}

resource "terraform_data" "functions_have_what_they_need" {

  lifecycle {

    precondition {
      condition     = !(var.run_as == "lambda") || !(var.code_bucket == "")
      error_message = "CodeBucket and CodeKey must name the functions' package."
    }

    precondition {
      condition     = !(var.run_as == "lambda") || !(var.code_key == "")
      error_message = "CodeBucket and CodeKey must name the functions' package."
    }

    precondition {
      condition     = !(var.run_as == "lambda") || !(var.kube_api_url == "")
      error_message = "KubeApiUrl must be set."
    }

    precondition {
      condition     = !(var.run_as == "lambda") || ((!(var.prometheus_url == "")) || (!(var.settings == "{}")))
      error_message = "PrometheusUrl must be set, unless the document of Settings has SIGNALS=kubernetes."
    }

    precondition {
      condition     = !(var.run_as == "lambda") || !(var.k3s_url == "")
      error_message = "K3sUrl must be set."
    }
  }
}

resource "aws_dynamodb_table" "state_table" {
  name         = "muster-${var.cluster_name}-state"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"

  attribute {
    name = "pk"
    type = "S"
  }

  ttl {
    attribute_name = "expiresEpoch"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_dynamodb_table" "logs_table" {
  name         = "muster-${var.cluster_name}-logs"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  ttl {
    attribute_name = "expiresEpoch"
    enabled        = true
  }

  server_side_encryption {
    enabled = true
  }
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_iam_policy" "node_plane_policy" {
  description = "What a tick and the handling of an interruption both do."
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [for s in [
      {
        "Sid"    = "Look"
        "Effect" = "Allow"
        "Action" = [
          "ec2:DescribeInstances",
          "ec2:DescribeSubnets",
        ]
        "Resource" = "*"
      },
      {
        "Sid"    = "LaunchTaggedAsThisClusters"
        "Effect" = "Allow"
        "Action" = "ec2:RunInstances"
        "Resource" = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:volume/*",
        ]
        "Condition" = {
          "StringEquals" = {
            "aws:RequestTag/muster.dev/cluster" = var.cluster_name
          }
          "ArnEquals" = {
            "ec2:LaunchTemplate" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/${var.launch_template_id}"
          }
        }
      },
      {
        "Sid"    = "LaunchFromTheTemplate"
        "Effect" = "Allow"
        "Action" = "ec2:RunInstances"
        "Resource" = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:key-pair/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/${var.launch_template_id}",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:network-interface/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:security-group/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}::image/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}::snapshot/*",
        ]
        "Condition" = {
          "ArnEquals" = {
            "ec2:LaunchTemplate" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/${var.launch_template_id}"
          }
        }
      },
      {
        "Sid"      = "LaunchIntoTheSubnets"
        "Effect"   = "Allow"
        "Action"   = "ec2:RunInstances"
        "Resource" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:subnet/*"
        "Condition" = {
          "StringEquals" = {
            "ec2:SubnetID" = var.worker_subnet_ids
          }
          "ArnEquals" = {
            "ec2:LaunchTemplate" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/${var.launch_template_id}"
          }
        }
      },
      {
        "Sid"    = "TagWhatIsBeingLaunched"
        "Effect" = "Allow"
        "Action" = "ec2:CreateTags"
        "Resource" = [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:volume/*",
        ]
        "Condition" = {
          "StringEquals" = {
            "ec2:CreateAction" = "RunInstances"
          }
        }
      },
      {
        "Sid"      = "GiveWorkersTheirRole"
        "Effect"   = "Allow"
        "Action"   = "iam:PassRole"
        "Resource" = var.node_role_arn
        "Condition" = {
          "StringEquals" = {
            "iam:PassedToService" = "ec2.amazonaws.com"
          }
        }
      },
      {
        "Sid"      = "TerminateThisClustersWorkers"
        "Effect"   = "Allow"
        "Action"   = "ec2:TerminateInstances"
        "Resource" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*"
        "Condition" = {
          "StringEquals" = {
            "aws:ResourceTag/muster.dev/cluster" = var.cluster_name
          }
          "StringNotEquals" = {
            "aws:ResourceTag/muster.dev/role" = "control-plane"
          }
        }
      },
      local.may_spot ? {
        "Sid"      = "LaunchSpot"
        "Effect"   = "Allow"
        "Action"   = "ec2:RunInstances"
        "Resource" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:spot-instances-request/*"
      } : null,
      local.may_spot ? {
        "Sid"      = "FirstSpotRequestOfTheAccount"
        "Effect"   = "Allow"
        "Action"   = "iam:CreateServiceLinkedRole"
        "Resource" = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
        "Condition" = {
          "StringEquals" = {
            "iam:AWSServiceName" = "spot.amazonaws.com"
          }
        }
      } : null,
      local.has_volume_key ? {
        "Sid"    = "VolumesWithAKeyOfYourOwn"
        "Effect" = "Allow"
        "Action" = [
          "kms:Decrypt",
          "kms:DescribeKey",
          "kms:GenerateDataKeyWithoutPlaintext",
          "kms:ReEncryptFrom",
          "kms:ReEncryptTo",
        ]
        "Resource" = var.volume_key_arn
        "Condition" = {
          "StringEquals" = {
            "kms:ViaService" = "ec2.${data.aws_region.current.region}.${data.aws_partition.current.dns_suffix}"
          }
        }
      } : null,
      local.has_volume_key ? {
        "Sid"      = "LetVolumesUseThatKey"
        "Effect"   = "Allow"
        "Action"   = "kms:CreateGrant"
        "Resource" = var.volume_key_arn
        "Condition" = {
          "Bool" = {
            "kms:GrantIsForAWSResource" = "true"
          }
          "StringEquals" = {
            "kms:ViaService" = "ec2.${data.aws_region.current.region}.${data.aws_partition.current.dns_suffix}"
          }
        }
      } : null,
      {
        "Sid"    = "RecordAndInterruptions"
        "Effect" = "Allow"
        "Action" = [
          "dynamodb:BatchGetItem",
          "dynamodb:GetItem",
          "dynamodb:UpdateItem",
        ]
        "Resource" = aws_dynamodb_table.state_table.arn
      },
      {
        "Sid"      = "WriteTheEventLog"
        "Effect"   = "Allow"
        "Action"   = "dynamodb:PutItem"
        "Resource" = aws_dynamodb_table.logs_table.arn
      },
      {
        "Sid"      = "ReadReferences"
        "Effect"   = "Allow"
        "Action"   = "ssm:GetParameter"
        "Resource" = "arn:${data.aws_partition.current.partition}:ssm:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:parameter${var.reference_path}/${var.cluster_name}/*"
      },
      local.has_secrets ? {
        "Sid"      = "ReadSecrets"
        "Effect"   = "Allow"
        "Action"   = "secretsmanager:GetSecretValue"
        "Resource" = var.secret_arns
      } : null,
    ] : s if s != null]
  })
}

resource "aws_iam_policy" "diagnose_policy" {
  description = "What only a tick does, to find out why a worker does not join, whether one is well, and what one costs."
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [for s in [
      {
        "Sid"      = "ReadStatusChecks"
        "Effect"   = "Allow"
        "Action"   = "ec2:DescribeInstanceStatus"
        "Resource" = "*"
      },
      {
        "Sid"      = "ReadTheConsoleOfThisClustersWorkers"
        "Effect"   = "Allow"
        "Action"   = "ec2:GetConsoleOutput"
        "Resource" = "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*"
        "Condition" = {
          "StringEquals" = {
            "aws:ResourceTag/muster.dev/cluster" = var.cluster_name
          }
        }
      },
      local.aws_prices ? {
        "Sid"      = "ReadPrices"
        "Effect"   = "Allow"
        "Action"   = "pricing:GetProducts"
        "Resource" = "*"
      } : null,
      local.aws_prices ? local.may_spot ? {
        "Sid"      = "ReadSpotPrices"
        "Effect"   = "Allow"
        "Action"   = "ec2:DescribeSpotPriceHistory"
        "Resource" = "*"
      } : null : null,
    ] : s if s != null]
  })
}

resource "aws_iam_policy" "operator_policy" {
  description = "For people, beside the node plane's policies: muster nodes status, explain and events read the event log, doctor looks at more."
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Sid"      = "ReadTheEventLog"
        "Effect"   = "Allow"
        "Action"   = "dynamodb:Query"
        "Resource" = aws_dynamodb_table.logs_table.arn
      },
      {
        "Sid"    = "LookAtTheTables"
        "Effect" = "Allow"
        "Action" = [
          "dynamodb:DescribeTable",
          "dynamodb:DescribeTimeToLive",
        ]
        "Resource" = [
          aws_dynamodb_table.state_table.arn,
          aws_dynamodb_table.logs_table.arn,
        ]
      },
      {
        "Sid"    = "LookAtWhatWorkersAreMadeOf"
        "Effect" = "Allow"
        "Action" = [
          "ec2:DescribeImages",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeLaunchTemplateVersions",
        ]
        "Resource" = "*"
      },
    ]
  })
}

resource "aws_iam_role" "tick_role" {
  count = local.functions ? 1 : 0
  assume_role_policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Effect" = "Allow"
        "Principal" = {
          "Service" = "lambda.amazonaws.com"
        }
        "Action" = "sts:AssumeRole"
      },
    ]
  })
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }
}

resource "aws_iam_role_policy_attachment" "tick_role_node_plane_policy" {
  count      = local.functions ? 1 : 0
  role       = aws_iam_role.tick_role[0].name
  policy_arn = aws_iam_policy.node_plane_policy.arn
}

resource "aws_iam_role_policy_attachment" "tick_role_diagnose_policy" {
  count      = local.functions ? 1 : 0
  role       = aws_iam_role.tick_role[0].name
  policy_arn = aws_iam_policy.diagnose_policy.arn
}

resource "aws_iam_role_policy_attachment" "tick_role_function_network_policy" {
  count      = local.functions ? 1 : 0
  role       = aws_iam_role.tick_role[0].name
  policy_arn = aws_iam_policy.function_network_policy[0].arn
}

resource "aws_iam_role_policy" "tick_role_function" {
  count = local.functions ? 1 : 0
  name  = "function"
  role  = aws_iam_role.tick_role[0].name
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Sid"    = "Log"
        "Effect" = "Allow"
        "Action" = [
          "logs:CreateLogStream",
          "logs:PutLogEvents",
        ]
        "Resource" = "${aws_cloudwatch_log_group.tick_logs[0].arn}:*"
      },
      {
        "Sid"      = "NodesAloneJoin"
        "Effect"   = "Deny"
        "Action"   = "ssm:GetParameter"
        "Resource" = "arn:${data.aws_partition.current.partition}:ssm:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:parameter${var.reference_path}/${var.cluster_name}/agent-token"
      },
    ]
  })
}

resource "aws_iam_role" "interruptions_role" {
  count = local.functions ? 1 : 0
  assume_role_policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Effect" = "Allow"
        "Principal" = {
          "Service" = "lambda.amazonaws.com"
        }
        "Action" = "sts:AssumeRole"
      },
    ]
  })
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }
}

resource "aws_iam_role_policy_attachment" "interruptions_role_node_plane_policy" {
  count      = local.functions ? 1 : 0
  role       = aws_iam_role.interruptions_role[0].name
  policy_arn = aws_iam_policy.node_plane_policy.arn
}

resource "aws_iam_role_policy_attachment" "interruptions_role_function_network_policy" {
  count      = local.functions ? 1 : 0
  role       = aws_iam_role.interruptions_role[0].name
  policy_arn = aws_iam_policy.function_network_policy[0].arn
}

resource "aws_iam_role_policy" "interruptions_role_function" {
  count = local.functions ? 1 : 0
  name  = "function"
  role  = aws_iam_role.interruptions_role[0].name
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Sid"    = "Log"
        "Effect" = "Allow"
        "Action" = [
          "logs:CreateLogStream",
          "logs:PutLogEvents",
        ]
        "Resource" = "${aws_cloudwatch_log_group.interruptions_logs[0].arn}:*"
      },
      {
        "Sid"      = "NodesAloneJoin"
        "Effect"   = "Deny"
        "Action"   = "ssm:GetParameter"
        "Resource" = "arn:${data.aws_partition.current.partition}:ssm:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:parameter${var.reference_path}/${var.cluster_name}/agent-token"
      },
      {
        "Sid"      = "SendToDeadLetters"
        "Effect"   = "Allow"
        "Action"   = "sqs:SendMessage"
        "Resource" = aws_sqs_queue.dead_letters.arn
      },
    ]
  })
}

resource "aws_iam_policy" "function_network_policy" {
  count       = local.functions ? 1 : 0
  description = "Network interfaces, which Lambda makes in the role's name and the functions' code must not."
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Sid"    = "LambdasNetworkInterfaces"
        "Effect" = "Allow"
        "Action" = [
          "ec2:AssignPrivateIpAddresses",
          "ec2:CreateNetworkInterface",
          "ec2:DeleteNetworkInterface",
          "ec2:DescribeNetworkInterfaces",
          "ec2:UnassignPrivateIpAddresses",
        ]
        "Resource" = "*"
      },
      {
        "Sid"    = "NotByTheCode"
        "Effect" = "Deny"
        "Action" = [
          "ec2:AssignPrivateIpAddresses",
          "ec2:CreateNetworkInterface",
          "ec2:DeleteNetworkInterface",
          "ec2:DescribeNetworkInterfaces",
          "ec2:UnassignPrivateIpAddresses",
        ]
        "Resource" = "*"
        "Condition" = {
          "ArnEquals" = {
            "lambda:SourceFunctionArn" = [
              "arn:${data.aws_partition.current.partition}:lambda:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:function:muster-${var.cluster_name}-tick",
              "arn:${data.aws_partition.current.partition}:lambda:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:function:muster-${var.cluster_name}-interruptions",
            ]
          }
        }
      },
    ]
  })
}

resource "aws_iam_policy" "queue_policy" {
  count       = local.daemon ? 1 : 0
  description = "For the daemon's role, beside NodePlanePolicy and DiagnosePolicy."
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Sid"    = "TakeInterruptions"
        "Effect" = "Allow"
        "Action" = [
          "sqs:DeleteMessage",
          "sqs:ReceiveMessage",
        ]
        "Resource" = aws_sqs_queue.interruptions[0].arn
      },
    ]
  })
}

resource "aws_cloudwatch_log_group" "tick_logs" {
  count             = local.functions ? 1 : 0
  name              = "/aws/lambda/muster-${var.cluster_name}-tick"
  retention_in_days = var.log_retention_days
}

resource "aws_cloudwatch_log_group" "interruptions_logs" {
  count             = local.functions ? 1 : 0
  name              = "/aws/lambda/muster-${var.cluster_name}-interruptions"
  retention_in_days = var.log_retention_days
}

resource "aws_lambda_function" "tick_function" {
  count         = local.functions ? 1 : 0
  function_name = "muster-${var.cluster_name}-tick"
  description   = "One tick of Muster's node plane."
  runtime       = "provided.al2023"
  handler       = "bootstrap"
  architectures = [var.architecture]
  role          = aws_iam_role.tick_role[0].arn
  memory_size   = 256
  timeout       = 900
  s3_bucket     = var.code_bucket
  s3_key        = var.code_key

  vpc_config {
    subnet_ids         = var.function_subnet_ids
    security_group_ids = var.function_security_group_ids
  }

  environment {
    variables = {
      "MUSTER_FUNCTION"         = "tick"
      "CLUSTER"                 = var.cluster_name
      "STATE_TABLE"             = aws_dynamodb_table.state_table.name
      "LOGS_TABLE"              = aws_dynamodb_table.logs_table.name
      "LOGS_KEEP_DAYS"          = var.event_log_days
      "LAUNCH_TEMPLATE"         = var.launch_template_id
      "LAUNCH_TEMPLATE_VERSION" = var.launch_template_version
      "SUBNET_IDS"              = join(",", var.worker_subnet_ids)
      "INSTANCE_TYPES"          = var.instance_types
      "SPOT"                    = var.spot
      "PRICES"                  = var.prices
      "MIN_WORKERS"             = var.min_workers
      "MAX_WORKERS"             = var.max_workers
      "K3S_URL"                 = var.k3s_url
      "K3S_TOKEN_REF"           = "ssm:${var.reference_path}/${var.cluster_name}/agent-token"
      "KUBE_API_URL"            = var.kube_api_url
      "KUBE_CA_REF"             = "ssm:${var.reference_path}/${var.cluster_name}/kube-ca"
      "KUBE_TOKEN_REF"          = "ssm:${var.reference_path}/${var.cluster_name}/kube-token"
      "PROMETHEUS_URL"          = var.prometheus_url
      "SETTINGS"                = var.settings
    }
  }
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }
  depends_on = [aws_cloudwatch_log_group.tick_logs]
}

resource "aws_lambda_function" "interruptions_function" {
  count         = local.functions ? 1 : 0
  function_name = "muster-${var.cluster_name}-interruptions"
  description   = "What Muster's node plane does when the cloud takes an instance away."
  runtime       = "provided.al2023"
  handler       = "bootstrap"
  architectures = [var.architecture]
  role          = aws_iam_role.interruptions_role[0].arn
  memory_size   = 256
  timeout       = 180
  s3_bucket     = var.code_bucket
  s3_key        = var.code_key

  vpc_config {
    subnet_ids         = var.function_subnet_ids
    security_group_ids = var.function_security_group_ids
  }

  environment {
    variables = {
      "MUSTER_FUNCTION"         = "interruptions"
      "CLUSTER"                 = var.cluster_name
      "STATE_TABLE"             = aws_dynamodb_table.state_table.name
      "LOGS_TABLE"              = aws_dynamodb_table.logs_table.name
      "LOGS_KEEP_DAYS"          = var.event_log_days
      "LAUNCH_TEMPLATE"         = var.launch_template_id
      "LAUNCH_TEMPLATE_VERSION" = var.launch_template_version
      "SUBNET_IDS"              = join(",", var.worker_subnet_ids)
      "INSTANCE_TYPES"          = var.instance_types
      "SPOT"                    = var.spot
      "PRICES"                  = var.prices
      "MIN_WORKERS"             = var.min_workers
      "MAX_WORKERS"             = var.max_workers
      "K3S_URL"                 = var.k3s_url
      "K3S_TOKEN_REF"           = "ssm:${var.reference_path}/${var.cluster_name}/agent-token"
      "KUBE_API_URL"            = var.kube_api_url
      "KUBE_CA_REF"             = "ssm:${var.reference_path}/${var.cluster_name}/kube-ca"
      "KUBE_TOKEN_REF"          = "ssm:${var.reference_path}/${var.cluster_name}/kube-token"
      "PROMETHEUS_URL"          = var.prometheus_url
      "SETTINGS"                = var.settings
    }
  }
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }
  depends_on = [aws_cloudwatch_log_group.interruptions_logs]
}

resource "aws_lambda_function_event_invoke_config" "tick_invocations" {
  count                        = local.functions ? 1 : 0
  function_name                = aws_lambda_function.tick_function[0].function_name
  qualifier                    = "$LATEST"
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60
}

resource "aws_lambda_function_event_invoke_config" "interruption_invocations" {
  count                        = local.functions ? 1 : 0
  function_name                = aws_lambda_function.interruptions_function[0].function_name
  qualifier                    = "$LATEST"
  maximum_retry_attempts       = 2
  maximum_event_age_in_seconds = 120

  destination_config {

    on_failure {
      destination = aws_sqs_queue.dead_letters.arn
    }
  }
}

resource "aws_cloudwatch_event_rule" "every_minute" {
  count               = local.functions ? 1 : 0
  name                = "muster-${var.cluster_name}-tick"
  description         = "One tick a minute."
  schedule_expression = "rate(1 minute)"
}

resource "aws_cloudwatch_event_target" "every_minute" {
  count     = local.functions ? 1 : 0
  rule      = aws_cloudwatch_event_rule.every_minute[0].name
  arn       = aws_lambda_function.tick_function[0].arn
  target_id = "tick"

  retry_policy {
    maximum_retry_attempts       = 0
    maximum_event_age_in_seconds = 60
  }
}

resource "aws_lambda_permission" "tick_permission" {
  count         = local.functions ? 1 : 0
  function_name = aws_lambda_function.tick_function[0].function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.every_minute[0].arn
}

resource "aws_cloudwatch_event_rule" "spot_warnings" {
  name        = "muster-${var.cluster_name}-spot-warnings"
  description = "The two minutes' notice of a Spot interruption."
  event_pattern = jsonencode({
    "source"      = ["aws.ec2"]
    "detail-type" = ["EC2 Spot Instance Interruption Warning"]
  })
}

resource "aws_cloudwatch_event_target" "spot_warnings" {
  rule      = aws_cloudwatch_event_rule.spot_warnings.name
  arn       = local.functions ? aws_lambda_function.interruptions_function[0].arn : aws_sqs_queue.interruptions[0].arn
  target_id = "interruptions"

  retry_policy {
    maximum_retry_attempts       = 5
    maximum_event_age_in_seconds = 120
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

resource "aws_cloudwatch_event_rule" "rebalance_recommendations" {
  name        = "muster-${var.cluster_name}-rebalance"
  description = "A Spot instance is at elevated risk."
  event_pattern = jsonencode({
    "source"      = ["aws.ec2"]
    "detail-type" = ["EC2 Instance Rebalance Recommendation"]
  })
}

resource "aws_cloudwatch_event_target" "rebalance_recommendations" {
  rule      = aws_cloudwatch_event_rule.rebalance_recommendations.name
  arn       = local.functions ? aws_lambda_function.interruptions_function[0].arn : aws_sqs_queue.interruptions[0].arn
  target_id = "interruptions"

  retry_policy {
    maximum_retry_attempts       = 5
    maximum_event_age_in_seconds = 120
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

resource "aws_cloudwatch_event_rule" "state_changes" {
  name        = "muster-${var.cluster_name}-state-changes"
  description = "An instance stops or ends."
  event_pattern = jsonencode({
    "source"      = ["aws.ec2"]
    "detail-type" = ["EC2 Instance State-change Notification"]
    "detail" = {
      "state" = [
        "stopping",
        "stopped",
        "shutting-down",
        "terminated",
      ]
    }
  })
}

resource "aws_cloudwatch_event_target" "state_changes" {
  rule      = aws_cloudwatch_event_rule.state_changes.name
  arn       = local.functions ? aws_lambda_function.interruptions_function[0].arn : aws_sqs_queue.interruptions[0].arn
  target_id = "interruptions"

  retry_policy {
    maximum_retry_attempts       = 5
    maximum_event_age_in_seconds = 120
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

resource "aws_cloudwatch_event_rule" "scheduled_changes" {
  name        = "muster-${var.cluster_name}-scheduled-changes"
  description = "AWS Health announces a change to an instance."
  event_pattern = jsonencode({
    "source"      = ["aws.health"]
    "detail-type" = ["AWS Health Event"]
    "detail" = {
      "service"           = ["EC2"]
      "eventTypeCategory" = ["scheduledChange"]
    }
  })
}

resource "aws_cloudwatch_event_target" "scheduled_changes" {
  rule      = aws_cloudwatch_event_rule.scheduled_changes.name
  arn       = local.functions ? aws_lambda_function.interruptions_function[0].arn : aws_sqs_queue.interruptions[0].arn
  target_id = "interruptions"

  retry_policy {
    maximum_retry_attempts       = 5
    maximum_event_age_in_seconds = 120
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

resource "aws_lambda_permission" "spot_warnings_permission" {
  count         = local.functions ? 1 : 0
  function_name = aws_lambda_function.interruptions_function[0].function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.spot_warnings.arn
}

resource "aws_lambda_permission" "rebalance_permission" {
  count         = local.functions ? 1 : 0
  function_name = aws_lambda_function.interruptions_function[0].function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.rebalance_recommendations.arn
}

resource "aws_lambda_permission" "state_changes_permission" {
  count         = local.functions ? 1 : 0
  function_name = aws_lambda_function.interruptions_function[0].function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.state_changes.arn
}

resource "aws_lambda_permission" "scheduled_changes_permission" {
  count         = local.functions ? 1 : 0
  function_name = aws_lambda_function.interruptions_function[0].function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.scheduled_changes.arn
}

resource "aws_sqs_queue" "interruptions" {
  count                     = local.daemon ? 1 : 0
  name                      = "muster-${var.cluster_name}-interruptions"
  message_retention_seconds = 3600
  receive_wait_time_seconds = 20
  sqs_managed_sse_enabled   = true
  redrive_policy = jsonencode({
    "deadLetterTargetArn" = aws_sqs_queue.dead_letters.arn
    "maxReceiveCount"     = 5
  })
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }
}

resource "aws_sqs_queue_policy" "interruptions_from_events" {
  count     = local.daemon ? 1 : 0
  queue_url = aws_sqs_queue.interruptions[0].url
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Effect" = "Allow"
        "Principal" = {
          "Service" = "events.amazonaws.com"
        }
        "Action"   = "sqs:SendMessage"
        "Resource" = aws_sqs_queue.interruptions[0].arn
        "Condition" = {
          "ArnEquals" = {
            "aws:SourceArn" = [
              aws_cloudwatch_event_rule.spot_warnings.arn,
              aws_cloudwatch_event_rule.rebalance_recommendations.arn,
              aws_cloudwatch_event_rule.state_changes.arn,
              aws_cloudwatch_event_rule.scheduled_changes.arn,
            ]
          }
        }
      },
    ]
  })
}

resource "aws_sqs_queue" "dead_letters" {
  name                      = "muster-${var.cluster_name}-dead-letters"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags = {
    "muster.dev/cluster" = var.cluster_name
  }
}

resource "aws_sqs_queue_policy" "dead_letters_from_events" {
  queue_url = aws_sqs_queue.dead_letters.url
  policy = jsonencode({
    "Version" = "2012-10-17"
    "Statement" = [
      {
        "Effect" = "Allow"
        "Principal" = {
          "Service" = "events.amazonaws.com"
        }
        "Action"   = "sqs:SendMessage"
        "Resource" = aws_sqs_queue.dead_letters.arn
        "Condition" = {
          "ArnEquals" = {
            "aws:SourceArn" = [
              aws_cloudwatch_event_rule.spot_warnings.arn,
              aws_cloudwatch_event_rule.rebalance_recommendations.arn,
              aws_cloudwatch_event_rule.state_changes.arn,
              aws_cloudwatch_event_rule.scheduled_changes.arn,
            ]
          }
        }
      },
    ]
  })
}

resource "aws_cloudwatch_metric_alarm" "tick_errors" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-tick-errors"
  alarm_description   = "Three of the last five ticks failed. `muster nodes events` says why; `muster nodes doctor` looks for the cause."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
  dimensions = {
    "FunctionName" = aws_lambda_function.tick_function[0].function_name
  }
}

resource "aws_cloudwatch_metric_alarm" "ticks_missing" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-ticks-missing"
  alarm_description   = "No tick has begun for twenty minutes, which is longer than one may last. Look at the rule and at the account's concurrency."
  namespace           = "AWS/Lambda"
  metric_name         = "Invocations"
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 4
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
  dimensions = {
    "FunctionName" = aws_lambda_function.tick_function[0].function_name
  }
}

resource "aws_cloudwatch_log_metric_filter" "blind_ticks" {
  count          = local.functions ? 1 : 0
  name           = "blind-ticks"
  log_group_name = aws_cloudwatch_log_group.tick_logs[0].name
  pattern        = "{ $.msg = \"decision\" && ($.message = \"NOOP: FLEET_UNAVAILABLE*\" || $.message = \"NOOP: METRICS_UNAVAILABLE*\") }"

  metric_transformation {
    namespace     = "Muster"
    name          = "${var.cluster_name}-blind-ticks"
    value         = "1"
    default_value = 0
  }
}

resource "aws_cloudwatch_metric_alarm" "ticks_blind" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-blind"
  alarm_description   = "For ten of fifteen minutes the cluster or its metrics could not be read, so nothing was scaled. An expired API token looks like this; `muster nodes events` says why, `muster nodes doctor` what to do."
  namespace           = "Muster"
  metric_name         = "${var.cluster_name}-blind-ticks"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 15
  datapoints_to_alarm = 10
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
}

resource "aws_cloudwatch_log_metric_filter" "pods_that_never_fit" {
  count          = local.functions ? 1 : 0
  name           = "pods-that-never-fit"
  log_group_name = aws_cloudwatch_log_group.tick_logs[0].name
  pattern        = "{ $.msg = \"decision\" && $.message = \"NOOP: PODS_NEVER_FIT*\" }"

  metric_transformation {
    namespace     = "Muster"
    name          = "${var.cluster_name}-pods-never-fit"
    value         = "1"
    default_value = 0
  }
}

resource "aws_cloudwatch_metric_alarm" "pods_never_fit" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-pods-never-fit"
  alarm_description   = "The only pending pods are of a kind that no new node could run. Change the pods, or INSTANCE_TYPES."
  namespace           = "Muster"
  metric_name         = "${var.cluster_name}-pods-never-fit"
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 3
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
}

resource "aws_cloudwatch_log_metric_filter" "paused_ticks" {
  count          = local.functions ? 1 : 0
  name           = "paused-ticks"
  log_group_name = aws_cloudwatch_log_group.tick_logs[0].name
  pattern        = "{ $.msg = \"decision\" && $.message = \"*PAUSED since*\" }"

  metric_transformation {
    namespace     = "Muster"
    name          = "${var.cluster_name}-paused-ticks"
    value         = "1"
    default_value = 0
  }
}

resource "aws_cloudwatch_metric_alarm" "paused_long" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-paused"
  alarm_description   = "Scaling has been paused for four hours. `muster nodes status` says who paused it and why, `muster nodes resume` ends it."
  namespace           = "Muster"
  metric_name         = "${var.cluster_name}-paused-ticks"
  statistic           = "Sum"
  period              = 3600
  evaluation_periods  = 4
  threshold           = 30
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
}

resource "aws_cloudwatch_metric_alarm" "interruption_errors" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-interruption-errors"
  alarm_description   = "An interruption could not be handled at once. The next tick goes on with it if it was noted."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
  dimensions = {
    "FunctionName" = aws_lambda_function.interruptions_function[0].function_name
  }
}

resource "aws_cloudwatch_metric_alarm" "interruption_throttles" {
  count               = local.functions ? 1 : 0
  alarm_name          = "muster-${var.cluster_name}-interruption-throttles"
  alarm_description   = "The account's concurrency is used up, so interruptions wait. Reserve some for this function, or ask AWS for more."
  namespace           = "AWS/Lambda"
  metric_name         = "Throttles"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
  dimensions = {
    "FunctionName" = aws_lambda_function.interruptions_function[0].function_name
  }
}

resource "aws_cloudwatch_metric_alarm" "letters_dead" {
  alarm_name          = "muster-${var.cluster_name}-dead-letters"
  alarm_description   = "An interruption event could not be delivered or handled. It is in the dead-letter queue, with the reason."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
  dimensions = {
    "QueueName" = aws_sqs_queue.dead_letters.name
  }
}

resource "aws_cloudwatch_metric_alarm" "state_table_refuses" {
  alarm_name          = "muster-${var.cluster_name}-state-table"
  alarm_description   = "The state table refuses requests for its load. Ticks fail with the reason and lose nothing."
  namespace           = "AWS/DynamoDB"
  metric_name         = "WriteThrottleEvents"
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.has_topic ? [var.alarm_topic_arn] : null
  dimensions = {
    "TableName" = aws_dynamodb_table.state_table.name
  }
}
