# Keeps one object in S3 for each service instance, with the AWS provider.

terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

variable "services" {
  type = map(object({
    id   = string
    port = number
  }))
}

variable "bucket" {
  type = string
}

resource "aws_s3_bucket_object" "rule" {
  for_each = var.services

  bucket  = var.bucket
  key     = "rules/${each.value.id}"
  content = each.value.port
}
