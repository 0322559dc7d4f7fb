"""Model folders: conversion, storage, and what a registered model id is computed from."""
